// The first words on a connection: the rank that listens gives a challenge, the one that comes
// answers with its hello, and the first accepts it, with a text, or refuses it, with the reason.
// Internal to net.
#pragma once

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "penstock/net/hello.h"
#include "penstock/net/waiting.h"

namespace penstock::net {

/// Somebody who has come to this rank's port.
class Visitor : public std::enable_shared_from_this<Visitor> {
 public:
  /// Called once: with the reason when the visitor is no rank of this job or says nothing for 5 s,
  /// and empty otherwise.
  using Ready = std::function<void(const std::shared_ptr<Visitor>&, std::string problem)>;

  Visitor(asio::ip::tcp::socket socket, const Hello& own, Ready ready);
  void start();

  const Hello& hello() const { return hello_; }
  asio::ip::tcp::socket& socket() { return socket_; }
  /// "10.0.0.2:40312".
  std::string from() const { return from_; }

  /// Closes the connection unless it has said who it is.
  void abandon();
  /// Answers and forgets the visitor, errors or not.
  void refuse(const std::string& reason);
  /// Answers; then the socket is the caller's. False when it is broken.
  bool accept(const std::string& text);

 private:
  void end(std::string problem);

  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  Hello own_;
  Hello hello_;
  Ready ready_;
  std::string from_;
  Challenge challenge_ = fresh_challenge();
  HelloBytes bytes_ = {};
};

/// Says hello where this rank has come to; blocks until the challenge is there. Throws as
/// read_answer().
void say_hello(asio::ip::tcp::socket& socket, const Hello& hello, const Waiting& waiting,
               const std::string& whom);

/// Reads the answer to a hello. Blocks until the deadline at most. Returns the text; throws
/// TransportError with the reason when refused or when the connection breaks, TimeoutError, and as
/// Waiting::until(), whose `io` must be the socket's.
std::string read_answer(asio::ip::tcp::socket& socket, const Waiting& waiting,
                        const std::string& whom);

}  // namespace penstock::net
