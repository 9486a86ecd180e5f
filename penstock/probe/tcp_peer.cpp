#include "penstock/probe/tcp_peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is POSIX
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "penstock/probe/measurement.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace penstock::probe {

namespace {

constexpr int kPatienceSeconds = 10;
constexpr int kChildPatienceSeconds = 30;

[[noreturn]] void fail(std::string_view what) {
  const int error = errno;
  throw TransportError(
      fmt::format("TCP over the loopback interface: {}: {}", what, std::strerror(error)));
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

/// No delay before small messages, and no wait without end.
bool set_options(int fd, int patience_seconds) {
  const int on = 1;
  const timeval patience{patience_seconds, 0};
  return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
         setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
         setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0;
}

/// Whether all bytes went out; errno says why not.
bool send_all(int fd, const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

/// Whether all bytes came in; errno says why not, 0 for a closed connection.
bool receive_all(int fd, std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t received = recv(fd, data, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received == 0) errno = 0;
    if (received <= 0) return false;
    data += received;
    size -= static_cast<size_t>(received);
  }
  return true;
}

/// The child process: it connects, then reads messages, whose first eight bytes are their size,
/// until the connection ends.
void serve(sockaddr_in address, std::byte* buffer, size_t capacity) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || !set_options(fd, kChildPatienceSeconds)) return;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  uint64_t size = 0;
  while (receive_all(fd, buffer, sizeof size)) {
    std::memcpy(&size, buffer, sizeof size);
    if (size < sizeof size || size > capacity) return;
    if (!receive_all(fd, buffer + sizeof size, size - sizeof size) || !send_all(fd, buffer, 1))
      return;
  }
}

}  // namespace

void Socket::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

TcpPeer::TcpPeer(size_t most_bytes) : message_(std::max(most_bytes, kLeastMessageBytes)) {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd() < 0) fail("cannot make a socket");
  const sockaddr_in any_port = loopback(0);
  if (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port) != 0)
    fail("no port of 127.0.0.1 is free");
  if (listen(listener.fd(), 1) != 0) fail("cannot listen");
  start_child(listener);

  pollfd waiting{listener.fd(), POLLIN, 0};
  const int ready = poll(&waiting, 1, kPatienceSeconds * 1000);
  if (ready == 0) errno = ETIMEDOUT;
  if (ready == 1) connection_.reset(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection_.fd() >= 0 && set_options(connection_.fd(), kPatienceSeconds)) return;
  const int error = errno;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  errno = error;
  fail("the second process does not connect");
}

void TcpPeer::start_child(const Socket& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail("cannot tell the port");
  child_ = fork();
  if (child_ < 0) fail("cannot start a second process");
  if (child_ > 0) return;
  close(listener.fd());  // or a connection to a dead parent would still be accepted
  serve(address, message_.data(), message_.size());
  _exit(0);  // tidy: allow(exits) the child of a fork must not run the parent's destructors
}

TcpPeer::~TcpPeer() {
  connection_.reset();
  // The child has nothing to save, and may be stuck in a send.
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) continue;
}

double TcpPeer::exchange_ns(size_t bytes) {
  PENSTOCK_CHECK(bytes >= kLeastMessageBytes && bytes <= message_.size(), bytes, message_.size());
  const uint64_t size = bytes;
  std::memcpy(message_.data(), &size, sizeof size);
  return time_ns([&] {
    if (!send_all(connection_.fd(), message_.data(), bytes))
      fail("cannot send to the second process");
    std::byte answer{};
    if (!receive_all(connection_.fd(), &answer, 1)) {
      if (errno == 0) errno = ECONNRESET;
      fail("no answer from the second process");
    }
  });
}

}  // namespace penstock::probe
