// What an exchange of gradients takes from the threads that compute meanwhile: the processor time
// of moving and adding them. Where cores are to spare, next to nothing.
//
//   const ExchangeLoss loss = measure_exchange_loss(mesh, run, {.to = 1, .from = 1},
//       {.threads = 1, .work = [] { return [kernel = Kernel()]() mutable { kernel.run(); }; }});
//   loss.ns_per_gb();
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

/// Nanoseconds that the slowest of a rank's threads falls behind for every 10^9 bytes that its
/// share of the exchange sends, and receives; half of these are added. One number for each of
/// several exchanges; noise makes some of them negative.
struct ExchangeLoss {
  static constexpr size_t kExchanges = 7;
  std::array<double, kExchanges> samples = {};

  /// Of ranks that exchange with each other: they wait for the slowest, which need not be the same
  /// one in each exchange.
  void slowest(const ExchangeLoss& other) {
    for (size_t k = 0; k < kExchanges; ++k) samples[k] = std::max(samples[k], other.samples[k]);
  }
  /// The median, at least 0.
  int64_t ns_per_gb() const;
};

struct ExchangeLossOptions {
  int threads = 1;  ///< that compute, as many as in training
  /// Called on each thread. What it returns is some work, of less than a millisecond.
  std::function<std::function<void()>()> work;
  std::chrono::milliseconds budget{200};
};

/// Blocks for about the budget, longer where 21 messages of 256 KiB take longer. Times with and
/// without an exchange take turns; an exchange is compared with the slower one of the pauses around
/// it, so that noise does not count as a loss. Every rank calls it with the same run, which nothing
/// else may use and which is to be closed then, and budget; r sends to s where s receives from r. A
/// rank without peers computes, too, but tells nothing (0). Throws TransportError when a peer is
/// lost, TimeoutError after a minute, RuntimeError soon after LinkPeers::stop.
ExchangeLoss measure_exchange_loss(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                                   const ExchangeLossOptions& options);

}  // namespace penstock::probe
