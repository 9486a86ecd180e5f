// Lets the ranks of a job in at one rank's port, while they find each other. Internal to net.
//
//   Gatekeeper gate(std::move(acceptor), tls, own_hello, /*first=*/1, /*count=*/ranks - 1);
//   gate.start();
//   const bool complete = wait_for_all(io, gate, deadline);
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "penstock/net/greeting.h"
#include "penstock/util/process/repeated_messages.h"

namespace penstock::net {

/// Lets in the ranks first .. first + count - 1, each once, until all are there. Not thread-safe;
/// runs in the acceptor's context.
class Gatekeeper {
 public:
  /// `tls`, null for none, encrypts their connections.
  Gatekeeper(asio::ip::tcp::acceptor acceptor, std::shared_ptr<Tls> tls, const Hello& own,
             int first, int count)
      : acceptor_(std::move(acceptor)),
        tls_(std::move(tls)),
        own_(own),
        first_(first),
        visitors_(static_cast<size_t>(count)) {}

  void start() { accept_next(); }
  bool is_complete() const { return here_ == visitors_.size(); }
  std::vector<int> missing() const;
  /// By rank; null for one that is missing.
  std::vector<std::shared_ptr<Visitor>>& visitors() { return visitors_; }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }

  /// Frees the places of ranks that have closed their connections, and says so. Returns them.
  std::vector<int> free_places();
  /// Those among the missing that were there and closed the connection.
  std::vector<int> gone() const;
  /// The last refusal, as in the log; empty: nobody was refused.
  const std::string& last_refusal() const { return last_refusal_; }
  /// Says how many connections were refused, some time after it last did.
  void tell_refusals();
  /// Lets nobody in any more; those who have not said who they are go.
  void stop();

 private:
  void accept_next();
  void on_visitor(const std::shared_ptr<Visitor>& visitor, std::string problem);

  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_{acceptor_.get_executor()};
  std::shared_ptr<Tls> tls_;
  Hello own_;
  int first_;
  std::vector<std::shared_ptr<Visitor>> visitors_;
  size_t here_ = 0;
  std::set<int> gone_;
  std::vector<std::weak_ptr<Visitor>> pending_;
  std::string last_refusal_;
  RepeatedMessages refusals_{"connections refused"};
};

/// Whether the other side has closed the connection, whatever it has sent before.
bool is_closed(asio::ip::tcp::socket& socket);

}  // namespace penstock::net
