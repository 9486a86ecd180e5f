#include "penstock/launch/line_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/launch/socket_address.h"
#include "penstock/util/error.h"

namespace penstock::launch {

namespace {

constexpr int kQueue = 128;

void set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

FileDescriptor make_socket(const SocketAddresses& address) {
  return FileDescriptor(
      socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address->ai_protocol));
}

}  // namespace

LineSocket::LineSocket(FileDescriptor fd) : fd_(std::move(fd)) {
  if (!is_open()) return;
  // A machine that is gone closes nothing: the kernel asks after 5 s, every 5 s, three times.
  set(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
  set(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
}

void LineSocket::send(const std::string& line) {
  if (!is_open()) return;
  const std::string text = line + "\n";
  const ssize_t sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(text.size())) close();
}

std::optional<std::string> LineSocket::next_line() {
  for (;;) {
    const size_t end = text_.find('\n');
    if (end != std::string::npos) {
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return line;
    }
    if (text_.size() > kMostLineBytes) close();
    if (!is_open()) return std::nullopt;
    std::array<char, kMostLineBytes> buffer{};
    const ssize_t size = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (size <= 0) {
      close();
      return std::nullopt;
    }
    text_.append(buffer.data(), static_cast<size_t>(size));
  }
}

FileDescriptor listen_at(const std::string& address, int port) {
  const SocketAddresses found = find_address(address, port);
  FileDescriptor listener = make_socket(found);
  if (listener.is_open()) set(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!listener.is_open() || bind(listener.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listener.get(), kQueue) != 0)
    throw ConfigError(
        fmt::format("cannot listen on port {} of {}: {}", port, address, std::strerror(errno)));
  return listener;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  return FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

FileDescriptor connect_to(const std::string& address, int port, std::chrono::milliseconds timeout,
                          int signals) {
  const SocketAddresses found = find_address(address, port);
  FileDescriptor result = make_socket(found);
  if (!result.is_open()) return result;
  if (connect(result.get(), found->ai_addr, found->ai_addrlen) == 0) return result;
  if (errno != EINPROGRESS) return FileDescriptor();
  std::array<pollfd, 2> files{{{result.get(), POLLOUT, 0}, {signals, POLLIN, 0}}};
  poll(files.data(), files.size(), static_cast<int>(timeout.count()));
  int error = ETIMEDOUT;
  socklen_t size = sizeof error;
  if (files[0].revents == 0 || getsockopt(result.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 ||
      error != 0)
    return FileDescriptor();
  return result;
}

}  // namespace penstock::launch
