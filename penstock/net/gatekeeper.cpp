#include "penstock/net/gatekeeper.h"

#include <fmt/format.h>
#include <poll.h>

#include "penstock/util/process/log.h"

namespace penstock::net {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kPauseAfterFailure{200};

}  // namespace

std::vector<int> Gatekeeper::missing() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < visitors_.size(); ++i) {
    if (!visitors_[i]) ranks.push_back(first_ + static_cast<int>(i));
  }
  return ranks;
}

std::vector<int> Gatekeeper::gone() const { return {gone_.begin(), gone_.end()}; }

std::vector<int> Gatekeeper::free_places() {
  std::vector<int> left;
  for (size_t i = 0; i < visitors_.size(); ++i) {
    std::shared_ptr<Visitor>& visitor = visitors_[i];
    if (!visitor || !is_closed(visitor->socket())) continue;
    const int rank = first_ + static_cast<int>(i);
    log_warning(fmt::format("rank {}, from {}, closed the connection before all ranks had come",
                            rank, visitor->from()));
    visitor.reset();
    --here_;
    gone_.insert(rank);
    left.push_back(rank);
  }
  return left;
}

void Gatekeeper::tell_refusals() {
  if (const auto line = refusals_.due(Clock::now())) log_warning(*line);
}

void Gatekeeper::stop() {
  asio::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (const auto& pending : pending_) {
    if (const auto visitor = pending.lock()) visitor->abandon();
  }
  if (const auto line = refusals_.rest()) log_warning(*line);
}

void Gatekeeper::accept_next() {
  acceptor_.async_accept([this](const asio::error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (!error) {
      const auto visitor = std::make_shared<Visitor>(
          std::make_unique<Stream>(std::move(socket), tls_), own_,
          [this](const auto& who, const std::string& problem) { on_visitor(who, problem); });
      std::erase_if(pending_, [](const auto& other) { return other.expired(); });
      pending_.push_back(visitor);
      visitor->start();
    }
    if (!error) return accept_next();
    // Most likely all file descriptors are in use: what frees some takes time.
    if (const auto line = refusals_.add(
            fmt::format("cannot accept a connection: {}", error.message()), Clock::now()))
      log_warning(*line);
    pause_.expires_after(kPauseAfterFailure);
    pause_.async_wait([this](const asio::error_code& ended) {
      if (!ended && acceptor_.is_open()) accept_next();
    });
  });
}

void Gatekeeper::on_visitor(const std::shared_ptr<Visitor>& visitor, std::string problem) {
  const int rank = visitor->hello().rank;
  const int64_t place = int64_t{rank} - first_;
  if (problem.empty()) {
    if (place < 0 || place >= std::ssize(visitors_)) {
      problem = fmt::format("rank {} is not expected here", rank);
    } else {
      auto& found = visitors_[static_cast<size_t>(place)];
      // One that is started again may come before it is noticed that the first one is gone.
      if (found && is_closed(found->socket())) free_places();
      if (!found) {
        found = visitor;
        ++here_;
        gone_.erase(rank);
        return;
      }
      problem = fmt::format("rank {} is there already, from {}", rank, found->from());
    }
  }
  last_refusal_ = fmt::format("refused a connection from {}: {}", visitor->from(), problem);
  if (const auto line = refusals_.add(last_refusal_, Clock::now())) log_warning(*line);
  visitor->refuse(problem);
}

bool is_closed(tcp::socket& socket) {
  pollfd file{socket.native_handle(), POLLRDHUP, 0};
  return poll(&file, 1, 0) > 0;
}

}  // namespace penstock::net
