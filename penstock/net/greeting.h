// The first words on a connection: the rank that listens gives its opening and a challenge, the one
// that comes its opening. They encrypt the connection, if they do so. The one that has come says
// its hello, and the other one accepts it, with a text, or refuses it, with the reason. Internal to
// net.
#pragma once

#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "penstock/net/hello.h"
#include "penstock/net/stream.h"
#include "penstock/net/waiting.h"

namespace penstock::net {

/// Somebody who has come to this rank's port.
class Visitor : public std::enable_shared_from_this<Visitor> {
 public:
  /// Called once: with the reason when the visitor is no rank of this job or says nothing for 5 s,
  /// and empty otherwise.
  using Ready = std::function<void(const std::shared_ptr<Visitor>&, std::string problem)>;

  Visitor(std::unique_ptr<Stream> stream, const Hello& own, Ready ready);
  void start();

  const Hello& hello() const { return hello_; }
  /// Of a visitor whose stream has not been taken.
  asio::ip::tcp::socket& socket() { return stream_->socket(); }
  /// "10.0.0.2:40312".
  std::string from() const { return from_; }

  /// Closes the connection unless it has said who it is.
  void abandon();
  /// Answers and forgets the visitor, errors or not.
  void refuse(const std::string& reason);
  /// Answers. False when the connection is broken.
  bool accept(const std::string& text);
  /// The connection of one that is accepted is the caller's from now on.
  std::unique_ptr<Stream> take_stream() { return std::move(stream_); }
  bool is_open() const { return stream_ && stream_->socket().is_open(); }

 private:
  void on_opening();
  void read_hello();
  void end(std::string problem);

  std::unique_ptr<Stream> stream_;
  asio::steady_timer timer_;
  Hello own_;
  Hello hello_;
  Ready ready_;
  std::string from_;
  Challenge challenge_ = fresh_challenge();
  OpeningBytes opening_ = {};
  HelloBytes bytes_ = {};
};

/// Encrypts the connection, if this rank does so, and says hello where it has come to; blocks until
/// that is done. Throws as read_answer(), and TransportError when one rank encrypts and the other
/// does not, or when they do not know each other by their secret or certificates.
void say_hello(Stream& stream, const Hello& hello, const Waiting& waiting, const std::string& whom);

/// Reads the answer to a hello. Blocks until the deadline at most. Returns the text; throws
/// TransportError with the reason when refused or when the connection breaks, TimeoutError, and as
/// Waiting::until(), whose `io` must be the socket's.
std::string read_answer(Stream& stream, const Waiting& waiting, const std::string& whom);

}  // namespace penstock::net
