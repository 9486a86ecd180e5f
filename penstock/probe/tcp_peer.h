// A second process at the other end of a TCP connection over the loopback interface, which takes
// messages and answers each with one byte: what two workers in processes of their own go through,
// unless they share memory.
//
//   TcpPeer peer(4 << 20);
//   double ns = peer.exchange_ns(4 << 20);
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace penstock::probe {

/// A file descriptor, closed on destruction.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() { reset(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  void reset(int fd = -1);

 private:
  int fd_;
};

/// Forks. The child makes system calls only, on memory that is there before the fork, so other
/// threads of this process do no harm; it ends with the connection, or when nothing comes for half
/// a minute. Not thread-safe.
class TcpPeer {
 public:
  static constexpr size_t kLeastMessageBytes = 8;

  /// For messages of up to `most_bytes`. Throws TransportError when there is no port, no process or
  /// no connection within ten seconds.
  explicit TcpPeer(size_t most_bytes);
  ~TcpPeer();
  TcpPeer(const TcpPeer&) = delete;
  TcpPeer& operator=(const TcpPeer&) = delete;

  /// Nanoseconds from starting to send `bytes` (from kLeastMessageBytes up) to having the answer.
  /// Blocks; throws TransportError when the other process is gone or ten seconds pass.
  double exchange_ns(size_t bytes);

 private:
  void start_child(const Socket& listener);

  std::vector<std::byte> message_;
  Socket connection_;
  pid_t child_ = -1;
};

}  // namespace penstock::probe
