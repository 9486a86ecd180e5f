// Serves the page of `penstock stream --serve`: shows a running stream in a browser. docs/live.md
// lists the routes and says what the server is safe against.
//
//   LiveServer server(stream, {.port = 8080});
//   log_info("the stream is shown at " + server.url());
//   run(stream);                                  // the server stops when it is destroyed
//
// One thread of its own serves all clients, so that a slow one makes no other wait.
#pragma once

#include <string>

#include "penstock/live/http_server.h"
#include "penstock/live/live_source.h"

namespace penstock::live {

using LiveServerOptions = HttpServerOptions;

class LiveServer {
 public:
  /// Listens when it returns. `source` must outlive the server. Throws ConfigError if the host or
  /// port cannot be used, RuntimeError if the system gives no thread or memory.
  explicit LiveServer(const LiveSource& source, const LiveServerOptions& options = {});

  int port() const { return server_.port(); }
  /// For a browser on this machine, such as http://127.0.0.1:8080/.
  std::string url() const { return server_.url(); }

 private:
  HttpServer server_;
};

}  // namespace penstock::live
