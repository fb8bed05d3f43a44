#include "runtime/ranks/Frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace heddle::ranks {

namespace {

/// Addresses of a name, freed at the end.
using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string &address, int port, std::string &why) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo *found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
  if (error != 0)
    why = fmt::format("{}: {}", address, gai_strerror(error));
  return {error == 0 ? found : nullptr, freeaddrinfo};
}

bool isLoopback(const addrinfo &address) {
  if (address.ai_family == AF_INET) {
    const auto *in = reinterpret_cast<const sockaddr_in *>(address.ai_addr);
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
  }
  const auto *in = reinterpret_cast<const sockaddr_in6 *>(address.ai_addr);
  return address.ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
}

/// Small frames go at once.
void hurry(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool sendAll(int fd, const void *data, size_t bytes) {
  const auto *at = static_cast<const char *>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return false;
    at += sent;
    bytes -= size_t(sent);
  }
  return true;
}

bool receiveAll(int fd, void *data, size_t bytes) {
  auto *at = static_cast<char *>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    at += got;
    bytes -= size_t(got);
  }
  return true;
}

/// One address, without blocking for longer than `seconds`.
Socket connectTo(const addrinfo &address, double seconds, std::string &why) {
  Socket made(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made)
    return made;
  const int flags = fcntl(made.get(), F_GETFL);
  fcntl(made.get(), F_SETFL, flags | O_NONBLOCK);
  int error = 0;
  if (::connect(made.get(), address.ai_addr, address.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd wait = {made.get(), POLLOUT, 0};
      socklen_t size = sizeof error;
      error = ETIMEDOUT;
      if (::poll(&wait, 1, int(seconds * 1000)) == 1)
        getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  if (error != 0) {
    why = strerror(error);
    return Socket();
  }
  fcntl(made.get(), F_SETFL, flags);
  hurry(made.get());
  return made;
}

} // namespace

Socket &Socket::operator=(Socket &&other) noexcept {
  std::swap(fd, other.fd);
  return *this;
}

void Socket::close() {
  if (fd >= 0)
    ::close(std::exchange(fd, -1));
}

void Socket::shutdown() {
  if (fd >= 0)
    ::shutdown(fd, SHUT_RDWR);
}

Socket Socket::listen(const std::string &address, int &port, int count,
                      std::string &why) {
  const Addresses known = resolve(address, port, why);
  const bool local = known && isLoopback(*known);
  constexpr int kWaiting = 4096;
  const int first = port;
  for (; port < first + count; ++port) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(uint16_t(port));
    at.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
    Socket made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1; // an ended run's port is free again at once
    setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (made &&
        ::bind(made.get(), reinterpret_cast<sockaddr *>(&at), sizeof at) == 0 &&
        ::listen(made.get(), kWaiting) == 0)
      return made;
    why = strerror(errno);
  }
  why = fmt::format("ports {} to {} cannot be listened on: {}", first,
                    first + count - 1, why);
  return Socket();
}

Socket Socket::connect(const std::string &address, int port, double seconds,
                       std::string &why) {
  const Addresses known = resolve(address, port, why);
  for (const addrinfo *one = known.get(); one; one = one->ai_next)
    if (Socket made = connectTo(*one, seconds, why))
      return made;
  return Socket();
}

bool Socket::send(const FrameHead &head, const void *payload) const {
  return sendAll(fd, &head, sizeof head) &&
         sendAll(fd, payload, size_t(head.bytes));
}

void Socket::giveUpSendsAfter(double seconds) const {
  const timeval limit = {.tv_sec = time_t(seconds) + 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool Socket::receive(FrameHead &head, std::string &payload) const {
  constexpr int64_t kMost = int64_t(1) << 40;
  if (!receiveAll(fd, &head, sizeof head) || head.magic != FrameHead::kMagic ||
      head.bytes < 0 || head.bytes > kMost)
    return false;
  // As much as has come: who is not a rank may promise any number of bytes.
  constexpr size_t kFirst = 1 << 20;
  const auto bytes = size_t(head.bytes);
  payload.clear();
  for (size_t have = 0; have < bytes; have = payload.size()) {
    payload.resize(std::min(bytes, std::max(kFirst, 2 * have)));
    if (!receiveAll(fd, payload.data() + have, payload.size() - have))
      return false;
  }
  return true;
}

bool Socket::readable(double seconds) const {
  pollfd wait = {fd, POLLIN, 0};
  return ::poll(&wait, 1, int(seconds * 1000)) == 1;
}

} // namespace heddle::ranks
