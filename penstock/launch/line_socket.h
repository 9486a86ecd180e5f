// A connection that carries short lines of text, without ever blocking.
//
//   LineSocket socket(connect_to("node01", 29510, timeout, signals.fd()));
//   socket.send("ended 0");
//   while (const auto line = socket.next_line()) handle(*line);
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "penstock/launch/file_descriptor.h"

namespace penstock::launch {

/// Closes itself when the other side has, when it sends more than kMostLineBytes without an end of
/// line, and when its machine has not answered for about 20 s. Not thread-safe. Movable.
class LineSocket {
 public:
  static constexpr size_t kMostLineBytes = 4096;

  LineSocket() = default;
  explicit LineSocket(FileDescriptor fd);

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  /// Of a line without its end. What the system does not take at once is lost, and the connection
  /// with it.
  void send(const std::string& line);
  /// Without its end; nothing while none is complete.
  std::optional<std::string> next_line();
  void close() { fd_.reset(); }

 private:
  FileDescriptor fd_;
  std::string text_;
};

/// A socket that listens there. Throws ConfigError.
FileDescriptor listen_at(const std::string& address, int port);
/// The next connection to it, or none (is_open()). Does not block.
FileDescriptor accept_from(const FileDescriptor& listener);
/// A connection, or none when nobody listens there, `timeout` is over, or `signals` is readable.
/// Throws ConfigError when the address is not known.
FileDescriptor connect_to(const std::string& address, int port, std::chrono::milliseconds timeout,
                          int signals);

}  // namespace penstock::launch
