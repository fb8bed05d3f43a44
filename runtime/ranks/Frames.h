//===- Frames.h - What ranks and their hub say over a socket --------------===//

#ifndef RUNTIME_RANKS_FRAMES_H
#define RUNTIME_RANKS_FRAMES_H

#include <cstdint>
#include <string>

namespace heddle::ranks {

/// Kinds of frames, with the direction.
enum class Say : int32_t {
  Hello,   ///< to the hub: `from` of `to` ranks; the job as payload
  Welcome, ///< from the hub: the seat is taken
  Ready,   ///< from the hub: all are there
  Message, ///< both: from a rank's place to a rank, on a communicator and tag
  Split,   ///< to the hub: color, place (`from`) and size (`to`); the axis
  Seats,   ///< from the hub: world ranks by place, as int32_t
  Misfit,  ///< from the hub: a split whose parts do not fit, with the sentence
  Abort,   ///< both: `from` failed (-1: the hub found it), with the sentence
  Closing, ///< both: `from` queues nothing more
  Left,    ///< to the hub: `from` goes in peace
  Refused, ///< from the hub: no seat for this one, with the sentence
};

/// Goes before `bytes` of payload. Both ends are builds of one program on
/// machines of one kind; the first word tells other speakers apart.
struct FrameHead {
  static constexpr uint32_t kMagic = 0x4845444c; // "HEDL"
  uint32_t magic = kMagic;
  Say say = Say::Hello;
  int32_t from = 0, to = 0;
  int32_t comm = 0, tag = 0; ///< comm: the number of the split
  int64_t bytes = 0;
};

/// A connected or listening socket.
class Socket {
public:
  explicit Socket(int fd = -1) : fd(fd) {}
  Socket(Socket &&other) noexcept : fd(other.fd) { other.fd = -1; }
  Socket &operator=(Socket &&other) noexcept;
  ~Socket() { close(); }

  explicit operator bool() const { return fd >= 0; }
  int get() const { return fd; }
  void close();
  /// Wakes who reads it: there is nothing more.
  void shutdown();

  /// Listens on the first free port of `port` ... `port + count - 1`, on
  /// loopback alone where `address` is that. `port` becomes the one taken.
  static Socket listen(const std::string &address, int &port, int count,
                       std::string &why);
  /// Connects within `seconds`.
  static Socket connect(const std::string &address, int port, double seconds,
                        std::string &why);

  /// Whole frames, waiting as long as it takes; false: the other end is gone.
  /// False with errno EAGAIN: nothing was taken for as long as was given.
  bool send(const FrameHead &head, const void *payload) const;
  void giveUpSendsAfter(double seconds) const;
  bool receive(FrameHead &head, std::string &payload) const;
  /// Whether something can be read within `seconds`.
  bool readable(double seconds) const;

private:
  int fd;
};

} // namespace heddle::ranks

#endif
