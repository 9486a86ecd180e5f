#include "penstock/probe/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "penstock/probe/concurrent.h"
#include "penstock/probe/hand_over.h"
#include "penstock/probe/kernels.h"
#include "penstock/probe/tcp_peer.h"
#include "penstock/util/error.h"

namespace penstock::probe {

namespace {

constexpr int kMaxWorkers = 1024;
constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
constexpr int64_t kSummedBytes = int64_t{64} << 20;
constexpr int64_t kLeastSummedBytes = int64_t{1} << 20;
constexpr int kMeasurements = 8;
constexpr int kOfProcesses = 2;  // of them

void check_options(const ProbeOptions& options, const Machine& machine) {
  if (options.workers < 0 || options.workers > kMaxWorkers) {
    throw ConfigError(fmt::format("expected from 1 to {} workers, or 0 for one per core; found {}",
                                  kMaxWorkers, options.workers));
  }
  check_sizes(options);
  // Two of them on each side.
  if (machine.memory_bytes > 0 && options.message_bytes > machine.memory_bytes / 8) {
    throw ConfigError(
        fmt::format("expected messages of at most an eighth of the memory, {} bytes; found {}",
                    machine.memory_bytes / 8, options.message_bytes));
  }
}

/// Bytes per second from the time of an exchange, less that of an exchange of nothing.
double rate(int64_t bytes, double exchange_ns, double empty_exchange_ns) {
  return static_cast<double>(bytes) * 1e9 /
         std::max(exchange_ns - empty_exchange_ns, exchange_ns / 100);
}

std::function<double()> summation(int64_t bytes) {
  const auto count = static_cast<size_t>(bytes) / sizeof(float);
  const auto sum = std::make_shared<std::vector<float>>(count, 0.0f);
  const auto part = std::make_shared<std::vector<float>>(count, 1.0f);
  return [=] {
    return static_cast<double>(bytes) * 1e9 /
           time_ns([&] { add_vectors(sum->data(), part->data(), count); });
  };
}

std::function<double()> multiplication() {
  constexpr int kProducts = 200;  // about a millisecond
  const auto kernel = std::make_shared<MatrixKernel>();
  return [=] {
    int64_t operations = 0;
    const double ns = time_ns([&] {
      for (int i = 0; i < kProducts; ++i) operations += kernel->run();
    });
    return static_cast<double>(operations) * 1e9 / ns;
  };
}

/// The measurements one after the other, each with the same share of the time.
class Probe {
 public:
  Probe(const ProbeOptions& options, ProbeResult& result)
      : options_(options),
        result_(result),
        measurements_(kMeasurements - (options.with_processes ? 0 : kOfProcesses)),
        share_(Seconds(options.seconds) / measurements_) {}

  void between_threads() {
    HandOver pair(static_cast<size_t>(options_.message_bytes));
    announce("hand-over between threads");
    result_.hand_over_ns = sample(share_, [&] { return pair.exchange_ns(HandOver::Copy::No) / 2; });
    announce("copied message between threads");
    result_.copied_bytes_per_s = sample(share_, [&] {
      return rate(options_.message_bytes, pair.exchange_ns(HandOver::Copy::Yes),
                  2 * result_.hand_over_ns.median);
    });
  }

  void between_processes() {
    const auto bytes = static_cast<size_t>(options_.message_bytes);
    TcpPeer peer(bytes);
    announce("latency of TCP");
    const Measurement latency =
        sample(share_, [&] { return peer.exchange_ns(TcpPeer::kLeastMessageBytes) / 2; });
    announce("bandwidth of TCP");
    result_.tcp_bytes_per_s = sample(share_, [&] {
      return rate(options_.message_bytes, peer.exchange_ns(bytes), 2 * latency.median);
    });
    result_.tcp_ns = latency;
  }

  void workers_alone_and_together() {
    const auto make_sum = [this] { return summation(result_.summed_bytes); };
    announce("summation, one worker");
    result_.sum_alone_bytes_per_s = measure_concurrently(1, share_, make_sum);
    announce("summation, all workers");
    result_.sum_shared_bytes_per_s = result_.workers == 1
                                         ? result_.sum_alone_bytes_per_s
                                         : measure_concurrently(result_.workers, share_, make_sum);
    announce("compute, one worker");
    result_.compute_alone_flops = measure_concurrently(1, share_, multiplication);
    announce("compute, all workers");
    result_.compute_shared_flops =
        result_.workers == 1 ? result_.compute_alone_flops
                             : measure_concurrently(result_.workers, share_, multiplication);
  }

  void finish() {
    if (options_.progress) options_.progress(measurements_, measurements_, "done");
  }

 private:
  void announce(const std::string& what) {
    if (options_.progress) options_.progress(done_, measurements_, what);
    ++done_;
  }

  const ProbeOptions& options_;
  ProbeResult& result_;
  int measurements_;
  Seconds share_;
  int done_ = 0;
};

}  // namespace

void check_sizes(const ProbeOptions& options) {
  const auto least = static_cast<int64_t>(TcpPeer::kLeastMessageBytes);
  if (options.message_bytes < least || options.message_bytes > kMaxMessageBytes) {
    throw ConfigError(fmt::format("expected messages of {} to {} bytes, found {}", least,
                                  kMaxMessageBytes, options.message_bytes));
  }
  if (!(options.seconds >= 0.1 && options.seconds <= 600))
    throw ConfigError(fmt::format("expected 0.1 to 600 seconds, found {}", options.seconds));
}

Transport parse_transport(std::string_view name) {
  if (name == "threads") return Transport::Threads;
  if (name == "tcp") return Transport::Tcp;
  throw ConfigError(fmt::format("'{}': expected threads or tcp", name.substr(0, 60)));
}

std::string_view to_string(Transport transport) {
  return transport == Transport::Tcp ? "tcp" : "threads";
}

ProbeResult probe(const ProbeOptions& options) {
  ProbeResult result;
  result.machine = this_machine();
  check_options(options, result.machine);
  result.workers =
      options.workers > 0 ? options.workers : std::min(result.machine.cores, kMaxWorkers);
  result.transport = options.transport;
  result.message_bytes = options.message_bytes;
  // Beyond the caches, but two vectors per worker within a quarter of the memory.
  const int64_t room = result.machine.memory_bytes > 0
                           ? result.machine.memory_bytes / 8 / result.workers
                           : kSummedBytes;
  result.summed_bytes = std::clamp(room, kLeastSummedBytes, kSummedBytes) / 64 * 64;

  Probe run(options, result);
  // First, while this process has started no thread yet.
  try {
    if (options.with_processes) run.between_processes();
  } catch (const TransportError& error) {
    if (options.transport == Transport::Tcp) throw;
    result.tcp_failure = error.what();
  }
  run.between_threads();
  run.workers_alone_and_together();
  run.finish();
  return result;
}

}  // namespace penstock::probe
