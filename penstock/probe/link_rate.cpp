#include "penstock/probe/link_rate.h"

#include <algorithm>
#include <vector>

#include "penstock/probe/measured_messages.h"

namespace penstock::probe {

namespace {

using Clock = std::chrono::steady_clock;

/// The first message, and the largest: each is twice as long as the one before, so that a slow link
/// is not given more than it can carry.
constexpr size_t kFirstBytes = 8 << 10;
constexpr size_t kMostBytes = 512 << 10;
constexpr int kMostLatencySamples = 21;
constexpr int kFewestLatencySamples = 3;
/// Messages on their way: while one is read the next one travels.
constexpr int kRateAhead = 2;
constexpr int kFewestMessages = 3;
constexpr int kMostMessages = 4096;

enum Channel : uint32_t { Latency, Bandwidth };

/// The messages of one call, from one rank to another.
class Measuring {
 public:
  Measuring(net::Mesh& mesh, uint32_t run, const LinkPeers& peers) : messages_(mesh, run, peers) {}

  /// The median time of a message of a byte or two, when all ranks send one at about the same time.
  /// Until the budget is over; two bytes mean that another one will come.
  int64_t latency_ns(std::chrono::milliseconds budget) {
    const Clock::time_point begin = Clock::now();
    std::vector<int64_t> times;
    bool sends = messages_.sends();
    bool receives = messages_.receives();
    for (int i = 0; sends || receives; ++i) {
      const MeasuredMessages::Number number{.channel = Latency,
                                            .sequence = static_cast<uint64_t>(i)};
      const auto incoming =
          receives ? messages_.receive(number, in_) : MeasuredMessages::Incoming();
      const Clock::time_point start = Clock::now();
      const bool goes_on = i + 1 < kFewestLatencySamples ||
                           (i + 1 < kMostLatencySamples && Clock::now() - begin < budget);
      const auto outgoing = sends ? messages_.send(number, out_, goes_on ? 2 : 1) : nullptr;
      if (receives) {
        messages_.wait(*incoming.transfer);
        // Of a rank that has ended the sender alone sets the pace.
        if (sends || !messages_.sends())
          times.push_back(
              std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
        receives = *incoming.size == 2;
      }
      if (outgoing) messages_.wait(*outgoing);
      sends = sends && goes_on;
    }
    if (times.empty()) return 0;
    const auto middle = times.begin() + std::ssize(times) / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
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
        outgoing.push_back(messages_.send(number(i), out_, goes_on ? size_of(i) : 0));
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
    return rate_of(came);
  }

 private:
  static size_t size_of(size_t i) {
    size_t bytes = kFirstBytes;
    for (size_t k = 0; k < i && bytes < kMostBytes; ++k) bytes *= 2;
    return bytes;
  }

  /// By the times at which messages came. The first one may have come faster than the link allows
  /// for long; the largest ones say most, where there are several.
  static int64_t rate_of(const std::vector<Clock::time_point>& came) {
    if (came.size() < 2) return 0;
    size_t first = 0;
    while (size_of(first) < kMostBytes) ++first;
    if (first + 3 > came.size()) first = 0;
    double bytes = 0;
    for (size_t i = first + 1; i < came.size(); ++i) bytes += static_cast<double>(size_of(i));
    const std::chrono::duration<double> time = came.back() - came[first];
    return static_cast<int64_t>(bytes / std::max(time.count(), 1e-9));
  }

  static MeasuredMessages::Number number(size_t i) { return {.channel = Bandwidth, .sequence = i}; }

  MeasuredMessages messages_;
  /// What is sent does not matter: one block for all messages.
  std::shared_ptr<Block> out_ = std::make_shared<Block>(kMostBytes);
  std::shared_ptr<Block> in_ = std::make_shared<Block>(kMostBytes);
};

}  // namespace

LinkRate measure_link(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                      std::chrono::milliseconds budget) {
  Measuring measuring(mesh, run, peers);
  LinkRate rate;
  rate.latency_ns = measuring.latency_ns(budget);
  rate.bytes_per_s = measuring.bytes_per_s(budget);
  return rate;
}

}  // namespace penstock::probe
