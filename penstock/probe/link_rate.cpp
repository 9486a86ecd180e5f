#include "penstock/probe/link_rate.h"

#include <algorithm>
#include <vector>

#include "penstock/probe/measured_messages.h"

namespace penstock::probe {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRateBytes = 512 << 10;
constexpr int kLatencySamples = 21;
/// Messages on their way: while one is read the next one travels.
constexpr int kRateAhead = 2;
constexpr int kFewestMessages = 3;
constexpr int kMostMessages = 4096;

enum Channel : uint32_t { Latency, Bandwidth };

/// The messages of one call, from one rank to another.
class Measuring {
 public:
  Measuring(net::Mesh& mesh, uint32_t run, const LinkPeers& peers) : messages_(mesh, run, peers) {}

  /// The median time of a message of one byte, when all ranks send one at about the same time.
  int64_t latency_ns() {
    std::vector<int64_t> times;
    for (uint64_t i = 0; i < kLatencySamples; ++i) {
      const MeasuredMessages::Number number{.channel = Latency, .sequence = i};
      const auto incoming =
          messages_.receives() ? messages_.receive(number, in_) : MeasuredMessages::Incoming();
      const Clock::time_point start = Clock::now();
      const auto outgoing = messages_.sends() ? messages_.send(number, out_, 1) : nullptr;
      if (incoming.transfer) messages_.wait(*incoming.transfer);
      times.push_back(
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
      if (outgoing) messages_.wait(*outgoing);
    }
    std::nth_element(times.begin(), times.begin() + kLatencySamples / 2, times.end());
    return messages_.receives() ? times[kLatencySamples / 2] : 0;
  }

  /// Sends until the time is over, then an empty message; receives until an empty one comes.
  int64_t bytes_per_s(std::chrono::milliseconds budget) {
    const Clock::time_point start = Clock::now();
    std::vector<MeasuredMessages::Incoming> incoming;
    std::vector<std::shared_ptr<net::Transfer>> outgoing;
    std::vector<Clock::time_point> came;
    bool sends = messages_.sends();
    bool receives = messages_.receives();
    for (int i = 0; receives && i < kRateAhead; ++i)
      incoming.push_back(messages_.receive(number(i), in_));
    for (size_t i = 0; sends || receives; ++i) {
      if (sends) {
        if (i >= kRateAhead) messages_.wait(*outgoing[i - kRateAhead]);
        const bool goes_on =
            i < kFewestMessages || (Clock::now() - start < budget && i < kMostMessages);
        outgoing.push_back(messages_.send(number(i), out_, goes_on ? kRateBytes : 0));
        sends = goes_on;
      }
      if (receives) {
        messages_.wait(*incoming[i].transfer);
        receives = *incoming[i].size > 0;
        if (receives) came.push_back(Clock::now());
        if (receives) incoming.push_back(messages_.receive(number(incoming.size()), in_));
      }
    }
    for (const auto& transfer : outgoing) messages_.wait(*transfer);
    if (came.size() < 2) return 0;
    // The first one may have come faster than the link allows for long.
    const std::chrono::duration<double> time = came.back() - came.front();
    const double bytes = static_cast<double>((came.size() - 1) * kRateBytes);
    return static_cast<int64_t>(bytes / std::max(time.count(), 1e-9));
  }

 private:
  static MeasuredMessages::Number number(size_t i) { return {.channel = Bandwidth, .sequence = i}; }

  MeasuredMessages messages_;
  /// What is sent does not matter: one block for all messages.
  std::shared_ptr<Block> out_ = std::make_shared<Block>(kRateBytes);
  std::shared_ptr<Block> in_ = std::make_shared<Block>(kRateBytes);
};

}  // namespace

LinkRate measure_link(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                      std::chrono::milliseconds budget) {
  Measuring measuring(mesh, run, peers);
  LinkRate rate;
  rate.latency_ns = measuring.latency_ns();
  rate.bytes_per_s = measuring.bytes_per_s(budget);
  return rate;
}

}  // namespace penstock::probe
