//===- RendezvousTest.cpp - Bytes of any number, words of others ----------===//
//
// Whole starts are tested by test_launch.py, any sequence of frames by
// test/fuzz.
//
//===----------------------------------------------------------------------===//

#include "runtime/ranks/Rendezvous.h"

#include <gmock/gmock.h>

#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>

using namespace heddle;
using namespace heddle::ranks;

namespace {

using Line = Rendezvous::Line;
using Clock = Rendezvous::Clock;

std::string frame(FrameHead head, const std::string &payload) {
  head.bytes = int64_t(payload.size());
  return std::string(reinterpret_cast<const char *>(&head), sizeof head) +
         payload;
}

std::pair<FrameHead, std::string> parse(const std::string &frame) {
  FrameHead head;
  std::memcpy(&head, frame.data(), sizeof head);
  return {head, frame.substr(sizeof head)};
}

/// Of two ranks that are seated.
struct Pair {
  std::string told;
  Rendezvous ranks{{.size = 2, .address = "node0", .port = 1, .job = "job"},
                   60,
                   Clock::time_point{},
                   [this](const std::string &sentence) { told = sentence; }};
  Line lines[2];

  Pair() {
    for (int rank : {0, 1})
      EXPECT_TRUE(
          ranks.take(lines[rank],
                     frame({.say = Say::Hello, .from = rank, .to = 2}, "job")));
    for (Line &line : lines)
      line.out.clear();
  }
};

// Around what a socket is read with at once, and what is first made room for.
TEST(Frames, OfAnyLengthAreWhole) {
  for (const size_t buffer :
       {size_t(1) << 16, size_t(1) << 20, size_t(2) << 20})
    for (const size_t bytes :
         {buffer - sizeof(FrameHead) - 1, buffer - sizeof(FrameHead),
          buffer - 1, buffer, buffer + 1}) {
      int ends[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      const Socket from(ends[0]), to(ends[1]);
      std::string sent(bytes, 'a');
      sent.back() = 'e';
      std::thread sender([&] {
        EXPECT_TRUE(from.send({.say = Say::Message, .bytes = int64_t(bytes)},
                              sent.data()));
      });
      FrameHead head;
      std::string came;
      EXPECT_TRUE(to.receive(head, came)) << bytes;
      sender.join();
      EXPECT_TRUE(came == sent) << bytes;
    }
}

// Nobody of another machine reaches ranks that are all on this one.
TEST(Socket, ListensOnLoopbackAloneWhereThatIsTheAddress) {
  for (const auto &[address, expected] :
       {std::pair("127.0.0.1", INADDR_LOOPBACK), {"0.0.0.0", INADDR_ANY}}) {
    std::string why;
    int port = 29900;
    const Socket made = Socket::listen(address, port, 100, why);
    ASSERT_TRUE(made) << why;
    sockaddr_in at = {};
    socklen_t size = sizeof at;
    ASSERT_EQ(getsockname(made.get(), reinterpret_cast<sockaddr *>(&at), &size),
              0);
    EXPECT_EQ(ntohl(at.sin_addr.s_addr), expected) << address;
    EXPECT_EQ(ntohs(at.sin_port), port);
  }
}

TEST(Rendezvous, PassesOnWhatComesInPieces) {
  const std::string payload(200'000, 'p');
  const std::string bytes =
      frame({.say = Say::Message, .from = 0, .to = 1, .tag = 3}, payload) +
      frame({.say = Say::Closing}, "");
  for (const size_t piece : {size_t(1) << 16, sizeof(FrameHead) - 1,
                             sizeof(FrameHead), sizeof(FrameHead) + 1}) {
    Pair pair;
    for (size_t at = 0; at < bytes.size(); at += piece)
      ASSERT_TRUE(pair.ranks.take(pair.lines[0], bytes.substr(at, piece)));
    ASSERT_EQ(pair.lines[1].out.size(), 2u) << piece;
    EXPECT_TRUE(parse(pair.lines[1].out[0]).second == payload) << piece;
    EXPECT_EQ(parse(pair.lines[1].out[1]).first.say, Say::Closing);
  }
}

// What ranks say stands on the terminals of all others.
TEST(Rendezvous, WordsOfRanksAreOneLine) {
  Pair aborted;
  ASSERT_TRUE(aborted.ranks.take(aborted.lines[0],
                                 frame({.say = Say::Abort}, "a\nb\x1b[2J")));
  ASSERT_EQ(aborted.lines[1].out.size(), 1u);
  EXPECT_EQ(parse(aborted.lines[1].out[0]).second, "a\\nb\\x1b[2J");

  Pair waits;
  ASSERT_TRUE(waits.ranks.take(
      waits.lines[0], frame({.say = Say::Split, .from = 0, .to = 2}, "d\np")));
  waits.ranks.advance(Clock::time_point{} + std::chrono::seconds(61));
  EXPECT_EQ(waits.told, "communicator d\\np waited for 60 s; missing: rank 1");
}

TEST(Rendezvous, StrangersAreSentAway) {
  Pair pair;
  for (const std::string &bytes :
       {std::string(sizeof(FrameHead), 'G'), frame({.say = Say::Abort}, "x"),
        frame({.say = Say::Hello, .from = 0, .to = 2}, "another job"),
        frame({.say = Say::Hello, .from = 0, .to = 2}, "job"),
        frame({.say = Say::Hello, .from = 2, .to = 2}, "job"),
        frame({.say = Say::Hello, .from = -1, .to = 2}, "job"),
        frame({.say = Say::Hello, .from = 0, .to = 3}, "job"),
        frame({.say = Say::Hello}, std::string(4097, 'j'))}) {
    Line line;
    EXPECT_FALSE(pair.ranks.take(line, bytes));
    EXPECT_EQ(line.rank, -1);
    pair.ranks.lost(line);
  }
  for (const Line &line : pair.lines)
    EXPECT_TRUE(line.out.empty());
}

} // namespace
