// A socket that listens for connections, and closes itself.
//
//   ListeningSocket socket("127.0.0.1", 0);
//   socket.port();  // the one that the system chose
#pragma once

#include <string>

namespace penstock::live {

class ListeningSocket {
 public:
  /// Port 0: any free one. Throws ConfigError, with what to do, if the host is not one of this
  /// machine or the port is taken or needs a privilege. May ask the name service.
  ListeningSocket(const std::string& host, int port);
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  int fd() const { return fd_; }
  int port() const { return port_; }
  /// Whether it has an address of 127.0.0.0/8, or ::1: however `host` was written.
  bool is_loopback() const { return is_loopback_; }
  /// The caller closes it.
  int release();

 private:
  int fd_ = -1;
  int port_ = 0;
  bool is_loopback_ = false;
};

}  // namespace penstock::live
