// What messages take from the threads that compute meanwhile: the processor time of exchanging
// gradients, which are moved and added, and of short messages between stages. Where cores are to
// spare, next to nothing.
//
//   const LossOptions options{
//       .threads = 1, .work = [] { return [kernel = Kernel()]() mutable { kernel.run(); }; }};
//   measure_exchange_loss(mesh, run, {.to = 1, .from = 1}, options).median_ns();
//   measure_message_loss(mesh, other_run, {.to = 1, .from = 1}, options).median_ns();
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "penstock/net/mesh.h"
#include "penstock/probe/measured_messages.h"

namespace penstock::probe {

/// Nanoseconds that the slowest of a rank's threads falls behind, in each of several exchanges;
/// noise makes some of them negative.
struct Loss {
  static constexpr size_t kExchanges = 7;
  std::array<double, kExchanges> samples = {};

  /// Of ranks that exchange with each other: they wait for the slowest, which need not be the same
  /// one in each exchange.
  void slowest(const Loss& other) {
    for (size_t k = 0; k < kExchanges; ++k) samples[k] = std::max(samples[k], other.samples[k]);
  }
  /// The median, at least 0.
  int64_t median_ns() const;
};

struct LossOptions {
  int threads = 1;  ///< that compute, as many as in training
  /// Called on each thread. What it returns is some work, of less than a millisecond.
  std::function<std::function<void()>()> work;
  std::chrono::milliseconds budget{200};
};

/// For every 10^9 bytes that a thread's share of the exchange sends, and receives; half of these
/// are added. Blocks for about the budget, longer where 21 messages of 256 KiB take longer. Times
/// with and without an exchange take turns; an exchange is compared with the slower one of the
/// pauses around it, so that noise does not count as a loss. Every rank calls it with the same run,
/// which nothing else may use and which is to be closed then, and budget; r sends to s where s
/// receives from r. A rank without peers computes, too, but tells nothing (0). Throws
/// TransportError when a peer is lost, TimeoutError after a minute, RuntimeError soon after
/// LinkPeers::stop.
Loss measure_exchange_loss(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                           const LossOptions& options);

inline constexpr int64_t kShortMessageBytes = 4 << 10;

/// For every message of kShortMessageBytes that a computing thread sends, and one that it receives,
/// as stages do: it computes for about 100 us between them and goes on at once. It waits for
/// nobody. All else as for measure_exchange_loss.
Loss measure_message_loss(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                          const LossOptions& options);

}  // namespace penstock::probe
