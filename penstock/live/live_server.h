// Serves the page of `penstock stream --serve`: shows a running stream in a browser. docs/live.md
// lists the routes and says what the server is safe against.
//
//   LiveServer server(stream, {.port = 8080});
//   log_info("the stream is shown at " + server.url());
//   run(stream);                                  // the server stops when it is destroyed
//
// One thread of its own serves all clients, so that a slow one makes no other wait.
#pragma once

#include <memory>
#include <string>

#include "penstock/live/live_source.h"

namespace penstock::live {

struct LiveServerOptions {
  /// A name or address of this machine. Anything but a loopback address shows the stream to all
  /// who can reach it: there is no password.
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one
};

class LiveServer {
 public:
  /// Listens when it returns. `source` must outlive the server. Throws ConfigError if the host or
  /// port cannot be used, RuntimeError if the system gives no thread or memory.
  explicit LiveServer(const LiveSource& source, const LiveServerOptions& options = {});
  /// Closes all connections at once, also those in the middle of a request; waits only for a call
  /// of `source` that is running.
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  int port() const;
  /// For a browser on this machine, such as http://127.0.0.1:8080/.
  std::string url() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::live
