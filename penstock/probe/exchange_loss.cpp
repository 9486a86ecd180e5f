#include "penstock/probe/exchange_loss.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/probe/computing.h"
#include "penstock/probe/measured_messages.h"
#include "penstock/util/numbers/rounding.h"

namespace penstock::probe {

namespace {

constexpr size_t kBytes = 256 << 10;
/// Messages on their way, and the memory that they go through in turn: more than a cache holds, as
/// gradients are.
constexpr size_t kAhead = 4;
constexpr size_t kBlocks = 32;
constexpr int kFewest = 3;
constexpr int kMost = 16'384;

void add(Block& sum, const Block& part) {
  std::array<float, 1024> a;
  std::array<float, 1024> b;
  for (size_t at = 0; at + sizeof(a) <= sum.size(); at += sizeof(a)) {
    std::memcpy(a.data(), sum.data() + at, sizeof(a));
    std::memcpy(b.data(), part.data() + at, sizeof(b));
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    std::memcpy(sum.data() + at, a.data(), sizeof(a));
  }
}

struct Exchanged {
  std::vector<double> rates;  ///< by thread
  double bytes_per_s = 0;
};

class Exchange {
 public:
  Exchange(net::Mesh& mesh, uint32_t run, const LinkPeers& peers, const Computing& computing)
      : messages_(mesh, run, peers), computing_(computing) {
    for (std::vector<std::shared_ptr<Block>>* blocks : {&in_, &out_}) {
      for (size_t i = 0; i < kBlocks; ++i) blocks->push_back(std::make_shared<Block>(kBytes));
    }
  }

  /// As an owner of a part of the gradients does: of each two messages that come one is added to
  /// its own. Between the first and the last of them.
  Exchanged run(uint32_t number, Clock::duration budget) {
    const Clock::time_point start = Clock::now();
    std::vector<MeasuredMessages::Incoming> incoming;
    std::vector<std::shared_ptr<net::Transfer>> outgoing;
    Reading first;
    Reading last;
    uint64_t came = 0;
    bool sends = messages_.sends();
    bool receives = messages_.receives();
    for (uint64_t i = 0; receives && i < kAhead; ++i)
      incoming.push_back(messages_.receive({number, i}, in_[i % kBlocks]));
    for (uint64_t i = 0; sends || receives; ++i) {
      if (sends) {
        if (i >= kAhead) messages_.wait(*outgoing[i - kAhead]);
        const bool goes_on = i < kFewest || (Clock::now() - start < budget && i < kMost);
        outgoing.push_back(messages_.send({number, i}, out_[i % kBlocks], goes_on ? kBytes : 0));
        sends = goes_on;
      }
      if (!receives) continue;
      messages_.wait(*incoming[i].transfer);
      receives = *incoming[i].size > 0;
      if (!receives) continue;
      (came++ == 0 ? first : last) = computing_.read();
      if (i % 2 == 0) add(*out_[(i + kBlocks / 2) % kBlocks], *in_[i % kBlocks]);
      const uint64_t next = incoming.size();
      incoming.push_back(messages_.receive({number, next}, in_[next % kBlocks]));
    }
    for (const auto& transfer : outgoing) messages_.wait(*transfer);
    if (came < 2) return {};
    return {.rates = rates(first, last),
            .bytes_per_s = static_cast<double>((came - 1) * kBytes) / seconds(first, last)};
  }

 private:
  MeasuredMessages messages_;
  const Computing& computing_;
  std::vector<std::shared_ptr<Block>> in_;
  std::vector<std::shared_ptr<Block>> out_;
};

/// Of the thread that loses most, per 10^9 bytes of its share.
double loss_ns(const std::vector<double>& before, const Exchanged& exchanged,
               const std::vector<double>& after) {
  double most = -1;
  for (size_t t = 0; t < exchanged.rates.size(); ++t) {
    const double alone = std::min(before[t], after[t]);
    if (alone > 0) most = std::max(most, 1 - exchanged.rates[t] / alone);
  }
  if (exchanged.rates.empty() || exchanged.bytes_per_s <= 0) return 0;
  const double bytes_per_s = exchanged.bytes_per_s / static_cast<double>(exchanged.rates.size());
  return most * 1e18 / bytes_per_s;
}

}  // namespace

int64_t Loss::median_ns() const {
  std::array<double, kExchanges> sorted = samples;
  std::nth_element(sorted.begin(), sorted.begin() + kExchanges / 2, sorted.end());
  return std::max<int64_t>(0, nearest(sorted[kExchanges / 2]));
}

Loss measure_exchange_loss(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                           const LossOptions& options) {
  const Computing computing(options.threads, options.work);
  Exchange exchange(mesh, run, peers, computing);
  const auto part = options.budget / (2 * Loss::kExchanges + 1);
  const auto pause = [&] {
    std::this_thread::sleep_for(kSettling);
    const Reading from = computing.read();
    std::this_thread::sleep_for(part);
    return rates(from, computing.read());
  };
  Loss loss;
  std::vector<double> before = pause();
  for (size_t k = 0; k < Loss::kExchanges; ++k) {
    const Exchanged exchanged = exchange.run(static_cast<uint32_t>(k), part);
    std::vector<double> after = pause();
    loss.samples[k] = loss_ns(before, exchanged, after);
    before = std::move(after);
  }
  return loss;
}

}  // namespace penstock::probe
