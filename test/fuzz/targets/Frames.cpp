#include "runtime/ranks/Frames.h"
#include "test/fuzz/Fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

using namespace heddle;
using ranks::FrameHead;
using ranks::Socket;

// What somebody may send to a port of ours.
static void run(std::string_view input) {
  int ends[2];
  fuzz::expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0,
               "sockets are there");
  Socket reader(ends[0]);
  const std::string_view sent = input.substr(0, 1 << 16);
  fuzz::expect(write(ends[1], sent.data(), sent.size()) == ssize_t(sent.size()),
               "a socket takes a few bytes");
  close(ends[1]);
  FrameHead head;
  std::string payload;
  while (reader.receive(head, payload))
    fuzz::expect(payload.size() == size_t(head.bytes), "a frame is whole");
}

/// Speaks as ranks do.
static void repair(std::string &input) {
  if (input.size() < sizeof(FrameHead))
    input.resize(sizeof(FrameHead));
  const uint32_t magic = FrameHead::kMagic;
  input.replace(0, sizeof magic, reinterpret_cast<const char *>(&magic),
                sizeof magic);
}

static fuzz::Announce target{{"Frames", run, nullptr, repair}};
