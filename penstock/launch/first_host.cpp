#include "penstock/launch/first_host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "penstock/launch/free_port.h"
#include "penstock/launch/host_lines.h"
#include "penstock/launch/job_token.h"
#include "penstock/util/error.h"
#include "penstock/util/quoted.h"

namespace penstock::launch {

namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr size_t kMostVisitors = 64;
/// Longer than it takes to notice that a machine is gone (LineSocket).
constexpr std::chrono::seconds kUntilGone{25};
/// Where a launch is gone, nobody knows how its ranks ended.
constexpr int kLost = 3;

std::string hosts_in_words(const std::vector<size_t>& hosts) {
  return fmt::format("{} {}", hosts.size() == 1 ? "host" : "hosts", fmt::join(hosts, ", "));
}

std::string ranks_train(int ranks) {
  return ranks == 1 ? "1 rank trains" : fmt::format("{} ranks train", ranks);
}

}  // namespace

FirstHost::FirstHost(const LaunchOptions& options, JobStreams& streams)
    : options_(options),
      streams_(streams),
      listener_(listen_at(options.address, options.port)),
      hosts_(static_cast<size_t>(options.hosts)) {
  hosts_[0].state = State::kReady;
  hosts_[0].ranks = options.ranks;
  hosts_[0].servers = options.servers;
}

std::vector<size_t> FirstHost::missing() const {
  std::vector<size_t> result;
  for (size_t h = 1; h < hosts_.size(); ++h) {
    if (hosts_[h].took_part && hosts_[h].state != State::kReady) result.push_back(h);
  }
  return result;
}

std::optional<JobStart> FirstHost::next_start(int restart) {
  hosts_[0].state = State::kReady;
  if (!missing().empty())
    streams_.say(fmt::format("waiting for {}, {:g} s at most", hosts_in_words(missing()),
                             std::chrono::duration<double>(options_.rejoin).count()));
  if (!wait(Clock::now() + options_.rejoin, [this] { return missing().empty(); }))
    return std::nullopt;
  std::vector<size_t> left_out;
  int training = 0;
  for (size_t h = 0; h < hosts_.size(); ++h) {
    if (hosts_[h].state == State::kReady)
      training += hosts_[h].ranks - hosts_[h].servers;
    else
      left_out.push_back(h);
  }
  const bool enough = options_.min_ranks > 0 ? training >= options_.min_ranks : left_out.empty();
  if (!enough) {
    const std::string why = fmt::format(
        "{} did not come within {:g} s; without it {}, expected {} (--min-ranks)",
        hosts_in_words(left_out), std::chrono::duration<double>(options_.rejoin).count(),
        ranks_train(training),
        options_.min_ranks > 0 ? fmt::format("at least {}", options_.min_ranks) : "all");
    end(kLost, why);
    throw RuntimeError(why);
  }
  if (!left_out.empty())
    streams_.say(fmt::format("{} left out: {}",
                             hosts_in_words(left_out) + (left_out.size() == 1 ? " is" : " are"),
                             ranks_train(training)));
  return number_ranks(restart);
}

/// Ranks that train first, host by host, then the servers.
JobStart FirstHost::number_ranks(int restart) {
  failure_ = 0;
  JobStart start{.restart = restart, .ranks = 0, .address = options_.address};
  start.port = free_port(options_.address);
  start.token = make_job_token();
  for (Host& host : hosts_) {
    host.took_part = host.state == State::kReady;
    if (!host.took_part) continue;
    start.ranks += host.ranks;
    start.servers += host.servers;
  }
  int rank = 0;
  int server = start.ranks - start.servers;
  for (Host& host : hosts_) {
    if (!host.took_part) continue;
    if (&host == hosts_.data())
      start.local = numbers_from(rank, host.ranks - host.servers, server, host.servers);
    host.socket.send(fmt::format("start {} {} {} {} {} {} {}", restart, start.ranks, start.servers,
                                 start.port, start.token, rank, server));
    host.state = State::kRunning;
    rank += host.ranks - host.servers;
    server += host.servers;
  }
  return start;
}

void FirstHost::collect(JobOutcome& outcome) {
  hosts_[0].state = State::kReady;
  const auto all_ended = [this] {
    return std::none_of(hosts_.begin(), hosts_.end(),
                        [](const Host& host) { return host.state == State::kRunning; });
  };
  if (outcome.interrupted) interrupted_ = true;
  // As long as nothing fails, ranks take as long as they take.
  if (!wait(std::nullopt, [&] { return all_ended() || has_failed(); })) note_failure(128 + signal_);
  if (!all_ended()) {
    wait(Clock::now() + options_.grace + options_.kill_after + options_.rejoin, all_ended);
    for (size_t h = 1; h < hosts_.size(); ++h) {
      if (hosts_[h].state != State::kRunning) continue;
      streams_.say(fmt::format("the ranks of host {} have not ended in time", h));
      lose(h);
    }
  }
  if (failure_ != 0) outcome.exit_code = failure_;
  outcome.interrupted = interrupted_;
}

void FirstHost::end(int exit_code, const std::string& why) {
  if (const auto said = refusals_.rest()) streams_.say(*said);
  for (Host& host : hosts_) host.socket.send(fmt::format("end {} {}", exit_code, why));
}

bool FirstHost::wait(const std::optional<Clock::time_point>& deadline,
                     const std::function<bool()>& done) {
  for (;;) {
    hear();
    if (done()) return true;
    const auto now = Clock::now();
    if (deadline && now >= *deadline) return true;
    std::vector<pollfd> files{{streams_.signals.fd(), POLLIN, 0}};
    add_files(files);
    constexpr std::chrono::milliseconds kLongest{1000};  // a visitor may be late
    const auto left = deadline ? std::chrono::ceil<std::chrono::milliseconds>(*deadline - now)
                               : std::chrono::milliseconds(kLongest);
    poll(files.data(), files.size(), static_cast<int>(std::min(left, kLongest).count()));
    streams_.error.write_some();
    while (const int signal = streams_.signals.next()) {
      if (signal == SIGCHLD || signal == SIGPIPE) continue;
      interrupted_ = true;
      signal_ = signal;
      return false;
    }
  }
}

void FirstHost::add_files(std::vector<pollfd>& files) const {
  files.push_back({listener_.get(), POLLIN, 0});
  for (const Visitor& visitor : visitors_) files.push_back({visitor.socket.fd(), POLLIN, 0});
  for (const Host& host : hosts_) {
    if (host.socket.is_open()) files.push_back({host.socket.fd(), POLLIN, 0});
  }
}

void FirstHost::hear() {
  for (size_t h = 1; h < hosts_.size(); ++h) hear_host(h);
  for (FileDescriptor next = accept_from(listener_); next.is_open();
       next = accept_from(listener_)) {
    if (visitors_.size() < kMostVisitors)
      visitors_.push_back({LineSocket(std::move(next)), Clock::now() + kPatience});
  }
  for (Visitor& visitor : visitors_) hear_visitor(visitor);
  std::erase_if(visitors_, [](const Visitor& visitor) {
    return !visitor.socket.is_open() || Clock::now() > visitor.deadline;
  });
}

std::string FirstHost::why_refused(const std::string& line, std::vector<int64_t>& numbers) const {
  std::istringstream words(line);
  std::string name, secret;
  words >> name >> secret;
  if (name != kHello) return "it is no launch of this version of Penstock";
  if (secret != secret_word(options_.secret))
    return "it has another PENSTOCK_JOB_TOKEN: it belongs to another job";
  numbers = numbers_in(words);
  if (numbers.size() != 4) return "it does not say which host it is on";
  const int64_t host = numbers[1];
  if (numbers[0] != options_.hosts)
    return fmt::format("it has --hosts {}, host 0 has {}", numbers[0], options_.hosts);
  if (host < 1 || host >= options_.hosts) return fmt::format("host {} is not expected", host);
  if (numbers[2] < 1 || numbers[2] > kMostLaunchedRanks || numbers[3] < 0 ||
      numbers[3] >= numbers[2])
    return fmt::format("it has {} ranks, {} of them servers", numbers[2], numbers[3]);
  const Host& known = hosts_[static_cast<size_t>(host)];
  if (known.state == State::kReady && known.socket.is_open())
    return fmt::format("a launch of host {} is there already", host);
  return {};
}

void FirstHost::hear_visitor(Visitor& visitor) {
  const auto line = visitor.socket.next_line();
  const bool is_new = visitor.line.empty();
  if (is_new && !line) return;
  if (!is_new && line) visitor.socket.close();  // nothing more is expected of it
  if (!visitor.socket.is_open()) return;
  if (is_new) visitor.line = *line;
  std::vector<int64_t> numbers;
  if (const std::string why = why_refused(visitor.line, numbers); !why.empty())
    return refuse(visitor, why);
  if (is_new) {
    visitor.socket.send("welcome");
    visitor.deadline = Clock::now() + kUntilGone;
  }
  const auto place = static_cast<size_t>(numbers[1]);
  if (hosts_[place].state == State::kRunning && hosts_[place].socket.is_open()) {
    // It waits until the launch in its place is gone.
    if (Clock::now() > visitor.deadline)
      refuse(visitor,
             fmt::format("a launch of host {} is there already, and its ranks run", place));
    return;
  }
  if (hosts_[place].state == State::kRunning) lose(place);
  Host& host = hosts_[place];
  host.socket = std::exchange(visitor.socket, {});
  host.state = State::kReady;
  host.ranks = static_cast<int>(numbers[2]);
  host.servers = static_cast<int>(numbers[3]);
}

void FirstHost::refuse(Visitor& visitor, const std::string& why) {
  visitor.socket.send("refused " + why);
  visitor.socket.close();
  if (const auto said = refusals_.add("refused a launch: " + why, Clock::now()))
    streams_.say(*said);
}

void FirstHost::hear_host(size_t place) {
  Host& host = hosts_[place];
  while (const auto line = host.socket.next_line()) {
    std::istringstream words(*line);
    std::string name;
    words >> name;
    const std::vector<int64_t> numbers = numbers_in(words);
    if (name == "failed" && numbers.size() == 1) {
      note_failure(static_cast<int>(numbers[0]));
    } else if (name == "ended" && numbers.size() == 2) {
      host.state = State::kReady;
      if (numbers[0] != 0) note_failure(static_cast<int>(numbers[0]));
      if (numbers[1] != 0) interrupted_ = true;
    } else {
      host.socket.close();
    }
  }
  if (!host.socket.is_open() && host.state != State::kAbsent) lose(place);
}

void FirstHost::lose(size_t place) {
  Host& host = hosts_[place];
  host.socket.close();
  if (std::exchange(host.state, State::kAbsent) != State::kRunning) return;
  streams_.say(fmt::format("the launch of host {} is gone", place));
  note_failure(kLost);
}

void FirstHost::note_failure(int exit_code) {
  if (failure_ != 0) return;
  failure_ = exit_code;
  for (Host& host : hosts_) {
    if (host.state == State::kRunning) host.socket.send("stop");
  }
}

}  // namespace penstock::launch
