#include "penstock/net/link_rate.h"

#include <algorithm>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::net {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 512 << 10;
constexpr int kLatencySamples = 21;
/// Messages on their way: while one is read the next one travels.
constexpr int kAhead = 2;
constexpr int kFewest = 3;
constexpr int kMost = 4096;

enum Channel : uint32_t { Latency, Bandwidth };

/// The messages of one call, from one rank to another.
class Measuring {
 public:
  Measuring(Mesh& mesh, uint32_t run, const LinkPeers& peers)
      : mesh_(mesh), run_(run), peers_(peers) {}

  /// The median time of a message of one byte, when all ranks send one at about the same time.
  int64_t latency_ns() {
    std::vector<int64_t> times;
    for (uint64_t i = 0; i < kLatencySamples; ++i) {
      const Tag tag{.run = run_, .channel = Latency, .sequence = i};
      const Incoming incoming = peers_.from ? receive(tag) : Incoming();
      const Clock::time_point start = Clock::now();
      const auto outgoing = peers_.to ? send(tag, 1) : nullptr;
      if (incoming.transfer) wait(*incoming.transfer);
      times.push_back(
          std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
      if (outgoing) wait(*outgoing);
    }
    std::nth_element(times.begin(), times.begin() + kLatencySamples / 2, times.end());
    return peers_.from ? times[kLatencySamples / 2] : 0;
  }

  /// Sends until the time is over, then an empty message; receives until an empty one comes.
  int64_t bytes_per_s(std::chrono::milliseconds budget) {
    const Clock::time_point start = Clock::now();
    std::vector<Incoming> incoming;
    std::vector<std::shared_ptr<Transfer>> outgoing;
    std::vector<Clock::time_point> came;
    bool sends = peers_.to.has_value();
    bool receives = peers_.from.has_value();
    for (int i = 0; receives && i < kAhead; ++i) incoming.push_back(receive(number(i)));
    for (size_t i = 0; sends || receives; ++i) {
      if (sends) {
        if (i >= kAhead) wait(*outgoing[i - kAhead]);
        const bool goes_on = i < kFewest || (Clock::now() - start < budget && i < kMost);
        outgoing.push_back(send(number(i), goes_on ? kBytes : 0));
        sends = goes_on;
      }
      if (receives) {
        wait(*incoming[i].transfer);
        receives = *incoming[i].size > 0;
        if (receives) came.push_back(Clock::now());
        if (receives) incoming.push_back(receive(number(incoming.size())));
      }
    }
    for (const auto& transfer : outgoing) wait(*transfer);
    if (came.size() < 2) return 0;
    // The first one may have come faster than the link allows for long.
    const std::chrono::duration<double> time = came.back() - came.front();
    const double bytes = static_cast<double>((came.size() - 1) * kBytes);
    return static_cast<int64_t>(bytes / std::max(time.count(), 1e-9));
  }

 private:
  Tag number(size_t i) const { return {.run = run_, .channel = Bandwidth, .sequence = i}; }
  struct Incoming {
    std::shared_ptr<Transfer> transfer;
    std::shared_ptr<uint64_t> size;
  };
  std::shared_ptr<Transfer> send(Tag tag, size_t bytes) {
    return mesh_.send(*peers_.to, tag, {{out_->data(), bytes}}, out_);
  }
  Incoming receive(Tag tag) {
    Incoming incoming{.transfer = nullptr, .size = std::make_shared<uint64_t>(0)};
    incoming.transfer = mesh_.receive(
        *peers_.from, tag, [in = in_, size = incoming.size](const std::vector<uint64_t>& sizes) {
          if (sizes.size() != 1 || sizes.front() > in->size())
            throw TransportError("sent a message of another size while links are measured");
          *size = sizes.front();
          return std::vector<Memory>{{in->data(), sizes.front()}};
        });
    return incoming;
  }
  static void wait(Transfer& transfer) {
    switch (transfer.wait(Clock::now() + std::chrono::minutes(1))) {
      case Transfer::Result::Done:
        return;
      case Transfer::Result::TimedOut:
        throw TimeoutError("measuring the links between ranks: no message has come for a minute");
      case Transfer::Result::Closed:
        throw TransportError("measuring the links between ranks: a rank is lost");
    }
  }

  Mesh& mesh_;
  uint32_t run_;
  LinkPeers peers_;
  /// What is sent does not matter: one block for all messages.
  std::shared_ptr<std::vector<std::byte>> out_ = std::make_shared<std::vector<std::byte>>(kBytes);
  std::shared_ptr<std::vector<std::byte>> in_ = std::make_shared<std::vector<std::byte>>(kBytes);
};

}  // namespace

LinkRate measure_link(Mesh& mesh, uint32_t run, const LinkPeers& peers,
                      std::chrono::milliseconds budget) {
  Measuring measuring(mesh, run, peers);
  LinkRate rate;
  rate.latency_ns = measuring.latency_ns();
  rate.bytes_per_s = measuring.bytes_per_s(budget);
  return rate;
}

}  // namespace penstock::net
