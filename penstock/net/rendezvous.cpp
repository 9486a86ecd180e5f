#include "penstock/net/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <asio/connect.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>

#include "penstock/net/gatekeeper.h"
#include "penstock/net/greeting.h"
#include "penstock/net/waiting.h"
#include "penstock/net/wire.h"
#include "penstock/util/error.h"
#include "penstock/util/process/log.h"
#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

using asio::ip::tcp;
using Clock = Waiting::Clock;
using Endpoints = std::vector<tcp::endpoint>;
using Streams = std::vector<std::unique_ptr<Stream>>;

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{500};
/// For an answer of one address among several.
constexpr std::chrono::milliseconds kAttempt{2000};

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("[{}]:{}", address, endpoint.port())
                                    : fmt::format("{}:{}", address, endpoint.port());
}

std::string text_of(const Endpoints& endpoints) {
  std::string text;
  for (const tcp::endpoint& one : endpoints) text += (text.empty() ? "" : ", ") + text_of(one);
  return text;
}

Hello hello_of(const MeshOptions& options, uint16_t port) {
  return {.token = options.token,
          .version = options.version,
          .rank = options.rank,
          .ranks = options.ranks,
          .port = port};
}

/// Those of IPv4, else of IPv6; none and the reason if the name is not known.
Endpoints look_up(asio::io_context& io, const MeshOptions& options, asio::error_code& error) {
  tcp::resolver resolver(io);
  const std::string port = std::to_string(options.port);
  auto found =
      resolver.resolve(tcp::v4(), options.address, port, tcp::resolver::numeric_service, error);
  if (error || found.empty())
    found = resolver.resolve(options.address, port, tcp::resolver::numeric_service, error);
  return error ? Endpoints() : Endpoints(found.begin(), found.end());
}

/// Looks the name up, again and again while it is not known: where machines come and go, name
/// servers learn of a new one some seconds late.
Endpoints resolve(const Waiting& waiting, const MeshOptions& options) {
  const std::string name = printable(options.address);
  bool said = false;
  while (true) {
    asio::error_code error;
    if (Endpoints found = look_up(waiting.io(), options, error); !found.empty()) return found;
    if (Clock::now() + kLongestPause > waiting.deadline()) {
      throw ConfigError(
          fmt::format("the address of rank 0, '{}', is not known: {}", name, error.message()));
    }
    if (!said) {
      log_warning(fmt::format("the address of rank 0, '{}', is not known yet: {}; asking again",
                              name, error.message()));
    }
    said = true;
    waiting.pause(kLongestPause);
  }
}

/// Where to listen for ranks that come to `here`, an address that rank 0's name has on this
/// machine. A machine's own name is often a loopback address there, which other machines cannot
/// reach; they know the name by another address of it. A loopback address that was asked for as
/// such stays one.
tcp::endpoint listening_at(const tcp::endpoint& here, const MeshOptions& options) {
  asio::error_code not_a_number;
  asio::ip::make_address(options.address, not_a_number);
  const bool name = not_a_number && options.address != "localhost";
  if (!name || !options.other_hosts || !here.address().is_loopback()) return here;
  return {here.protocol(), here.port()};
}

tcp::acceptor listen_at(asio::io_context& io, const tcp::endpoint& endpoint) {
  try {
    tcp::acceptor acceptor(io);
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
    return acceptor;
  } catch (const asio::system_error& error) {
    const char* advice = error.code() == asio::error::address_in_use
                             ? "another job listens there, or a program has made a connection "
                               "from that port: choose another one"
                             : "rank 0 must run on the machine with that address (MASTER_ADDR)";
    throw TransportError(fmt::format("cannot listen at {}: {}; {}", text_of(endpoint),
                                     error.code().message(), advice));
  }
}

/// Runs until the gatekeeper is complete or the deadline is there, and calls `look` from time to
/// time.
bool wait_for_all(const Waiting& waiting, Gatekeeper& gate, const std::function<void()>& look) {
  return waiting.until([&] { return gate.is_complete(); },
                       [&] {
                         look();
                         gate.tell_refusals();
                       });
}

/// What is left of `io` (timers, the next accept) ends before the objects go.
void run_to_end(asio::io_context& io) {
  io.restart();
  io.poll();
}

/// The first ones by number.
std::string ranks_in_words(const std::vector<int>& ranks) {
  constexpr size_t kNamed = 8;
  const std::vector<int> named(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kNamed)));
  std::string text =
      fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "));
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

/// Tells all ranks that are there and have no answer yet.
void refuse_all(Gatekeeper& gate, const std::string& problem) {
  for (const auto& visitor : gate.visitors()) {
    if (visitor && visitor->is_open()) visitor->refuse(problem);
  }
}

void warn_of_loopback(const MeshOptions& options, const tcp::endpoint& address,
                      const tcp::endpoint& here) {
  if (here == address) return;
  log_warning(
      fmt::format("on this machine '{}' is {}, where other machines cannot come: rank 0 "
                  "listens at all addresses of this machine, port {}",
                  printable(options.address), address.address().to_string(), here.port()));
}

[[noreturn]] void refuse_for_missing(Gatekeeper& gate, const std::vector<int>& missing,
                                     const tcp::endpoint& here, const MeshOptions& options) {
  std::string problem = fmt::format("{} of {} did not come to {} within {:g} s",
                                    ranks_in_words(missing), options.ranks, text_of(here),
                                    std::chrono::duration<double>(options.patience).count());
  if (const std::vector<int> gone = gate.gone(); !gone.empty())
    problem += fmt::format("; {} had come and closed the connection", ranks_in_words(gone));
  if (!gate.last_refusal().empty()) problem += "; rank 0 " + gate.last_refusal();
  refuse_all(gate, problem);
  throw TimeoutError(problem);
}

/// Where the ranks listen, for all of them.
std::string table_of_ranks(Gatekeeper& gate) {
  WireWriter table;
  for (const auto& visitor : gate.visitors()) {
    // A rank that came over the loopback is on this machine: the others find it where they found
    // this rank.
    const asio::ip::address from = visitor->socket().remote_endpoint().address();
    table.text(from.is_loopback() ? "" : from.to_string());
    table.put<uint16_t>(visitor->hello().port);
  }
  return table.take();
}

Streams receive_all(const Waiting& waiting, const MeshOptions& options,
                    const std::shared_ptr<Tls>& tls) {
  asio::io_context& io = waiting.io();
  // Where it has several, the others look for the one that this rank takes.
  const tcp::endpoint address = resolve(waiting, options).front();
  const tcp::endpoint here = listening_at(address, options);
  warn_of_loopback(options, address, here);
  Gatekeeper gate(listen_at(io, here), tls, hello_of(options, 0), 1, options.ranks - 1);
  gate.start();
  // Somebody may start a rank again that has gone.
  bool complete = false;
  try {
    complete = wait_for_all(waiting, gate, [&] { gate.free_places(); });
  } catch (const RuntimeError& error) {
    refuse_all(gate, error.what());
    throw;
  }
  const std::vector<int> missing = gate.missing();
  gate.stop();
  run_to_end(io);
  if (!complete) refuse_for_missing(gate, missing, here, options);
  const std::string table = table_of_ranks(gate);
  Streams streams(static_cast<size_t>(options.ranks));
  for (const auto& visitor : gate.visitors()) {
    if (is_closed(visitor->socket()) || !visitor->accept(table)) {
      const std::string problem = fmt::format(
          "rank {} closed the connection before all ranks were connected", visitor->hello().rank);
      refuse_all(gate, problem);
      throw TransportError(problem);
    }
    streams[static_cast<size_t>(visitor->hello().rank)] = visitor->take_stream();
  }
  return streams;
}

/// Connects to one of them, again and again while nobody listens there, unless somebody has: then
/// it has gone.
tcp::socket connect_to(const Waiting& waiting, const Endpoints& endpoints, const std::string& whom,
                       bool has_listened) {
  asio::io_context& io = waiting.io();
  std::chrono::milliseconds pause = kFirstPause;
  for (size_t next = 0;; next = (next + 1) % endpoints.size()) {
    tcp::socket socket(io);
    std::optional<asio::error_code> ended;
    socket.async_connect(endpoints[next], [&](const asio::error_code& error) { ended = error; });
    const Waiting attempt = endpoints.size() > 1 ? waiting.at_most(kAttempt) : waiting;
    const bool timed_out = !attempt.until([&] { return ended.has_value(); });
    if (timed_out) {
      socket.close();
      while (!ended) {
        io.restart();
        io.run_one();
      }
    }
    if (!timed_out && !*ended) return socket;
    if (has_listened && !timed_out && *ended == asio::error::connection_refused)
      throw TransportError(fmt::format("{} has ended before all ranks were connected", whom));
    if (next + 1 < endpoints.size() && Clock::now() < waiting.deadline()) continue;
    if (Clock::now() + pause > waiting.deadline()) {
      throw TimeoutError(fmt::format("cannot reach {} at {}: {}", whom, text_of(endpoints),
                                     timed_out ? "no answer" : ended->message()));
    }
    waiting.pause(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

/// Goes to the ranks from 1 to this one, of which rank 0, at `first`, has sent the table.
void go_to_lower_ranks(const Waiting& waiting, const MeshOptions& options,
                       const std::shared_ptr<Tls>& tls, const std::string& table,
                       const tcp::endpoint& first, Streams& streams) {
  WireReader reader(table);
  for (int r = 1; r < options.rank; ++r) {
    const std::string text(reader.text());
    asio::error_code unreadable;
    const auto address = text.empty() ? first.address() : asio::ip::make_address(text, unreadable);
    if (unreadable)
      throw TransportError(
          fmt::format("rank 0 (at {}) sent a list of ranks with an address that is "
                      "none: '{}'",
                      text_of(first), printable(text.substr(0, 60))));
    const tcp::endpoint endpoint(address, reader.get<uint16_t>());
    const std::string name = fmt::format("rank {} (at {})", r, text_of(endpoint));
    auto& stream = streams[static_cast<size_t>(r)];
    stream =
        std::make_unique<Stream>(connect_to(waiting, {endpoint}, name, /*has_listened=*/true), tls);
    say_hello(*stream, hello_of(options, 0), waiting, name);
  }
  for (int r = 1; r < options.rank; ++r)
    read_answer(*streams[static_cast<size_t>(r)], waiting, fmt::format("rank {}", r));
}

Streams go_to_all(const Waiting& waiting, const MeshOptions& options,
                  const std::shared_ptr<Tls>& tls) {
  asio::io_context& io = waiting.io();
  Streams streams(static_cast<size_t>(options.ranks));
  streams[0] = std::make_unique<Stream>(
      connect_to(waiting, resolve(waiting, options), "rank 0", /*has_listened=*/false), tls);
  asio::error_code closed;
  const tcp::endpoint first = streams[0]->socket().remote_endpoint(closed);
  if (closed) throw TransportError("rank 0 closed the connection at once");
  const std::string whom = fmt::format("rank 0 (at {})", text_of(first));
  // Where rank 0 can be reached from, the others can reach this rank.
  const tcp::endpoint own(streams[0]->socket().local_endpoint().address(), 0);
  Gatekeeper gate(listen_at(io, listening_at(own, options)), tls, hello_of(options, 0),
                  options.rank + 1, options.ranks - options.rank - 1);
  const uint16_t port = gate.port();
  say_hello(*streams[0], hello_of(options, port), waiting, whom);
  gate.start();
  // Rank 0 waits as long as this rank does, and says then who is missing.
  const std::string table = read_answer(*streams[0], waiting.longer(std::chrono::seconds(2)), whom);
  go_to_lower_ranks(waiting, options, tls, table, first, streams);
  // Rank 0 lets nobody in any more who comes again.
  const bool complete = wait_for_all(waiting, gate, [&] {
    std::vector<int> gone = gate.free_places();
    if (is_closed(streams[0]->socket())) gone.insert(gone.begin(), 0);
    if (!gone.empty())
      throw TransportError(fmt::format("{} closed the connection before all ranks were connected",
                                       ranks_in_words(gone)));
  });
  const std::vector<int> missing = gate.missing();
  gate.stop();
  run_to_end(io);
  if (!complete) {
    throw TimeoutError(
        fmt::format("{} did not come to rank {} in time", ranks_in_words(missing), options.rank));
  }
  for (const auto& visitor : gate.visitors()) {
    const int peer = visitor->hello().rank;
    if (!visitor->accept("")) throw TransportError(fmt::format("rank {} went away at once", peer));
    streams[static_cast<size_t>(peer)] = visitor->take_stream();
  }
  return streams;
}

/// While it lives, running `io` for a few seconds says once why this process waits for others.
class ReasonOfWaiting {
 public:
  ReasonOfWaiting(asio::io_context& io, const MeshOptions& options) : timer_(io) {
    if (options.reason.empty()) return;
    timer_.expires_after(options.reason_after);
    timer_.async_wait([&options](const asio::error_code& ended) {
      if (!ended)
        log_warning(
            fmt::format("this process waits for the other ranks of a job, for up to {:g} s: it is "
                        "rank {} of {} by {}; without them, unset these variables",
                        std::chrono::duration<double>(options.patience).count(), options.rank,
                        options.ranks, options.reason));
    });
  }

 private:
  asio::steady_timer timer_;
};

/// While it lives, running `io` throws TransportError once the pipe's other end is closed.
class FailureWatch {
 public:
  FailureWatch(asio::io_context& io, int pipe) : pipe_(io) {
    if (pipe < 0) return;
    asio::error_code error;
    pipe_.assign(pipe, error);
    if (error)
      throw ConfigError(fmt::format(
          "file descriptor {} is no open pipe (PENSTOCK_FAILURE_PIPE): {}", pipe, error.message()));
    pipe_.async_wait(asio::posix::stream_descriptor::wait_read, [](const asio::error_code& ended) {
      if (!ended)
        throw TransportError("another rank of the job has ended before all were connected");
    });
  }
  ~FailureWatch() {
    if (pipe_.is_open()) pipe_.release();
  }
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

 private:
  asio::posix::stream_descriptor pipe_;
};

}  // namespace

Streams meet(asio::io_context& io, const MeshOptions& options) {
  const std::shared_ptr<Tls> tls = make_tls(options.tls, options.token);
  const Waiting waiting(io, Clock::now() + options.patience, options.stop);
  const FailureWatch watch(io, options.failure_pipe);
  const ReasonOfWaiting reason(io, options);
  return options.rank == 0 ? receive_all(waiting, options, tls) : go_to_all(waiting, options, tls);
}

}  // namespace penstock::net
