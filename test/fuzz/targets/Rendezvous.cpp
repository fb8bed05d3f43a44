#include "runtime/ranks/Rendezvous.h"
#include "heddle/Support/Printable.h"
#include "test/fuzz/Fuzz.h"

#include <cstring>
#include <memory>
#include <set>

using namespace heddle;
using namespace heddle::ranks;

namespace {

constexpr size_t kMostLines = 8;
constexpr double kTimeout = 60;

/// Ranks and others that talk to a hub, in the order that the input says.
class Session {
public:
  explicit Session(int size) : size(size) {}

  void play(std::string_view input);
  void end();

private:
  using Line = Rendezvous::Line;

  void connect() {
    if (lines.size() < kMostLines)
      lines.push_back(std::make_unique<Line>());
  }
  void send(size_t line, std::string_view bytes) {
    if (!ranks.take(*lines[line], bytes))
      drop(line);
    hear();
  }
  void drop(size_t line) {
    hear();
    const std::unique_ptr<Line> closed = std::move(lines[line]);
    lines.erase(lines.begin() + ptrdiff_t(line));
    ranks.lost(*closed);
    hear();
  }
  void wait(int seconds) {
    now += std::chrono::seconds(seconds);
    ranks.advance(now);
    hear();
  }
  void sendFrame(size_t line, std::string_view &input);
  void hear();
  void hear(const Line &line, std::string_view frame) const;

  static void tell(const std::string &sentence) {
    fuzz::checkMessage(sentence);
  }

  const int size;
  Rendezvous::Clock::time_point now{};
  Rendezvous ranks{{.size = size, .address = "node0", .port = 1, .job = "job"},
                   kTimeout,
                   now,
                   tell};
  std::vector<std::unique_ptr<Line>> lines;
};

/// What it says, from, to, communicator and tag are a byte each; then comes the
/// length of the payload, -1: the name of the job.
void Session::sendFrame(size_t line, std::string_view &input) {
  const std::string_view words = fuzz::take(input, 6);
  if (words.size() < 6)
    return;
  const auto word = [&](size_t i) {
    return int32_t(static_cast<signed char>(words[i]));
  };
  const std::string_view payload =
      word(5) == -1 ? "job" : fuzz::take(input, size_t(word(5) & 63));
  const FrameHead head = {.say = Say(word(0)),
                          .from = word(1),
                          .to = word(2),
                          .comm = word(3),
                          .tag = word(4),
                          .bytes = int64_t(payload.size())};
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  send(line, bytes.append(payload));
}

/// A frame that goes to a line is whole, and what hubs say.
void Session::hear(const Line &line, std::string_view frame) const {
  FrameHead head;
  fuzz::expect(frame.size() >= sizeof head, "a frame has a head");
  std::memcpy(&head, frame.data(), sizeof head);
  const std::string_view payload = frame.substr(sizeof head);
  fuzz::expect(head.magic == FrameHead::kMagic &&
                   size_t(head.bytes) == payload.size(),
               "a frame is whole");
  switch (head.say) {
  case Say::Refused:
  case Say::Misfit:
    return fuzz::checkMessage(payload);
  case Say::Abort: // in the words of a rank, which may have none
    return fuzz::expect(isPrintable(payload), "a failure is one line", payload);
  case Say::Seats: {
    std::set<int32_t> seats;
    for (size_t at = 0; at < payload.size(); at += sizeof(int32_t)) {
      int32_t rank = -1;
      std::memcpy(&rank, payload.substr(at).data(), sizeof rank);
      fuzz::expect(rank >= 0 && rank < size && seats.insert(rank).second,
                   "seats are ranks, once each");
    }
    return fuzz::expect(seats.empty() || seats.contains(line.rank),
                        "a rank is among its own");
  }
  case Say::Welcome:
  case Say::Ready:
  case Say::Message:
  case Say::Closing:
    return fuzz::expect(line.rank >= 0 && line.rank < size,
                        "who is no rank hears nothing");
  default:
    fuzz::expect(false, "a hub says what hubs say");
  }
}

void Session::hear() {
  std::set<int> seated;
  for (const auto &line : lines) {
    fuzz::expect(line->rank < 0 || seated.insert(line->rank).second,
                 "a rank has one line");
    for (const std::string &frame : line->out)
      hear(*line, frame);
    line->out.clear();
  }
}

// A byte each: what happens, and to which line.
void Session::play(std::string_view input) {
  while (!input.empty() && !ranks.done()) {
    const std::string_view what = fuzz::take(input, 2);
    const auto which = static_cast<unsigned char>(what.back());
    if (what[0] == 'c' || lines.empty())
      connect();
    else if (what[0] == 'd')
      drop(which % lines.size());
    else if (what[0] == 'w')
      wait(which);
    else if (what[0] == 'b')
      send(which % lines.size(), fuzz::take(input, which));
    else
      sendFrame(which % lines.size(), input);
  }
}

/// Whatever has happened, a hub ends when nobody is there.
void Session::end() {
  while (!lines.empty())
    drop(lines.size() - 1);
  wait(int(kTimeout) + 1);
  fuzz::expect(ranks.done(), "a hub without ranks ends");
}

} // namespace

// A byte with the number of ranks, then what happens.
static void run(std::string_view input) {
  const std::string_view size = fuzz::take(input, 1);
  if (size.empty())
    return;
  Session session(1 + (size[0] & 3));
  session.play(input);
  session.end();
}

static fuzz::Announce target{{"Rendezvous", run}};
