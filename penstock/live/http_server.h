// A small HTTP server for what a running program shows: one thread of its own serves all clients,
// so that a slow one makes no other wait. docs/live.md says what it is safe against.
//
//   HttpServer server([](const Request& request) { return text_answer(200, "hello\n"); },
//       {.port = 8080});
//
// Thread-safety: it may be made and destroyed by any one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "penstock/live/answer.h"

namespace penstock::live {

struct HttpServerOptions {
  /// A name or address of this machine. Anything but a loopback address shows the program to all
  /// who can reach it: there is no password.
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: any free one
};

/// Called from the server's thread; meanwhile no other request is answered. What it throws is
/// logged, and answered with 500.
using Answers = std::function<Answer(const Request& request)>;

class HttpServer {
 public:
  /// Listens when it returns. Throws ConfigError if the host or port cannot be used, RuntimeError
  /// if the system gives no thread or memory.
  HttpServer(Answers answers, const HttpServerOptions& options);
  /// Closes all connections at once, also those in the middle of a request; waits only for an
  /// answer that is being made.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// For a client on this machine, such as http://127.0.0.1:8080/.
  std::string url() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace penstock::live
