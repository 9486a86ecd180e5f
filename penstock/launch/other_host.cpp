#include "penstock/launch/other_host.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <sstream>

#include "penstock/launch/host_lines.h"
#include "penstock/util/error.h"
#include "penstock/util/printable.h"

namespace penstock::launch {

namespace {

constexpr std::chrono::milliseconds kAttempt{2000};
constexpr std::chrono::milliseconds kPause{200};

}  // namespace

bool OtherHost::connect() {
  if (!alone_since_) alone_since_ = Clock::now();
  while (!socket_.is_open()) {
    if (Clock::now() > *alone_since_ + options_.rejoin)
      throw RuntimeError(fmt::format(
          "cannot reach the launch of host 0 at {}, port {}, within {:g} s", options_.address,
          options_.port, std::chrono::duration<double>(options_.rejoin).count()));
    socket_ =
        LineSocket(connect_to(options_.address, options_.port, kAttempt, streams_.signals.fd()));
    if (socket_.is_open()) break;
    pollfd signals{streams_.signals.fd(), POLLIN, 0};
    poll(&signals, 1, static_cast<int>(kPause.count()));
    while (const int signal = streams_.signals.next()) {
      if (signal == SIGCHLD || signal == SIGPIPE) continue;
      signal_ = signal;
      return false;
    }
  }
  welcome_ = false;
  socket_.send(fmt::format("{} {} {} {} {} {}", kHello, secret_word(options_.secret),
                           options_.hosts, options_.host, options_.ranks, options_.servers));
  return true;
}

bool OtherHost::wait_for_line() {
  for (;;) {
    hear();
    if (!lines_.empty() || !socket_.is_open()) return true;
    if (!welcome_ && Clock::now() > *alone_since_ + options_.rejoin)
      throw RuntimeError(fmt::format(
          "what listens at {}, port {}, has not answered within {:g} s: expected the launch of "
          "host 0",
          options_.address, options_.port, std::chrono::duration<double>(options_.rejoin).count()));
    std::vector<pollfd> files{{streams_.signals.fd(), POLLIN, 0}};
    add_files(files);
    poll(files.data(), files.size(), welcome_ ? -1 : static_cast<int>(kPause.count()));
    streams_.error.write_some();
    while (const int signal = streams_.signals.next()) {
      if (signal == SIGCHLD || signal == SIGPIPE) continue;
      signal_ = signal;
      return false;
    }
  }
}

OtherHost::Order OtherHost::next() {
  for (;;) {
    has_failed_ = false;
    while (!lines_.empty()) {
      const std::string line = lines_.front();
      lines_.erase(lines_.begin());
      if (line == "stop" || line == "welcome") continue;
      const Order order = obey(line);
      const bool is_over = !socket_.is_open() || (!lines_.empty() && lines_.front() == "stop");
      if (!order.start || !is_over) return order;
      // The start has failed elsewhere before this host's ranks began: none of them runs.
      tell_ended({});
    }
    const bool was_there = socket_.is_open();
    if ((!was_there && !connect()) || !wait_for_line())
      return {.start = std::nullopt, .exit_code = 128 + signal_};
    if (lines_.empty() && was_there)
      streams_.say("the launch of host 0 has closed the connection: trying to reach it");
    if (lines_.empty()) {
      if (!alone_since_) alone_since_ = Clock::now();
      poll(nullptr, 0, static_cast<int>(kPause.count()));
    }
  }
}

OtherHost::Order OtherHost::obey(const std::string& line) {
  std::istringstream words(line);
  std::string name;
  words >> name;
  const auto rest = [&] {
    std::string text;
    std::getline(words >> std::ws, text);
    return printable(text);
  };
  if (name == "refused") throw ConfigError("the launch of host 0 has refused this one: " + rest());
  if (name == "end") {
    Order order;
    words >> order.exit_code;
    if (const std::string why = rest(); !why.empty()) streams_.say(why);
    return order;
  }
  JobStart start{.address = options_.address};
  int first_rank = 0;
  int first_server = 0;
  words >> start.restart >> start.ranks >> start.servers >> start.port >> start.token >>
      first_rank >> first_server;
  if (name != "start" || !words)
    throw RuntimeError("the launch of host 0 is of another version of Penstock");
  start.local =
      numbers_from(first_rank, options_.ranks - options_.servers, first_server, options_.servers);
  return {.start = start, .exit_code = 0};
}

void OtherHost::tell_ended(const JobOutcome& outcome) {
  socket_.send(fmt::format("ended {} {}", outcome.exit_code, outcome.interrupted ? 1 : 0));
}

void OtherHost::add_files(std::vector<pollfd>& files) const {
  if (socket_.is_open()) files.push_back({socket_.fd(), POLLIN, 0});
}

void OtherHost::hear() {
  while (auto line = socket_.next_line()) {
    alone_since_.reset();
    welcome_ = true;
    if (*line == "stop") has_failed_ = true;
    lines_.push_back(*std::move(line));
  }
  if (!socket_.is_open()) has_failed_ = true;
}

void OtherHost::tell_failure(int exit_code) { socket_.send(fmt::format("failed {}", exit_code)); }

}  // namespace penstock::launch
