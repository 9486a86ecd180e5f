// Short messages of threads that compute, as workers are that run stages.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/probe/computing.h"
#include "penstock/probe/exchange_loss.h"
#include "penstock/probe/measured_messages.h"

namespace penstock::probe {

namespace {

/// Messages on their way.
constexpr size_t kShortAhead = 64;
constexpr auto kBetween = std::chrono::microseconds(100);

double seconds_of(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// The calling thread, which computes and exchanges, and those beside it, which compute.
class ShortMessages {
 public:
  ShortMessages(net::Mesh& mesh, uint32_t run, const LinkPeers& peers, const LossOptions& options)
      : messages_(mesh, run, peers), beside_(std::max(options.threads - 1, 0), options.work) {
    if (options.threads > 0) work_ = options.work();
    for (size_t i = 0; i < kShortAhead; ++i) {
      in_.push_back(std::make_shared<Block>(kShortMessageBytes));
      out_.push_back(std::make_shared<Block>(kShortMessageBytes));
    }
  }

  /// Pieces of work per second, by thread, without messages. Blocks for the budget.
  std::vector<double> pause(Clock::duration budget) {
    std::this_thread::sleep_for(kSettling);
    const Reading from = beside_.read();
    Clock::time_point now = from.at;
    int64_t done = 0;
    for (; work_ && now - from.at < budget; now = Clock::now(), ++done) work_();
    if (!work_) std::this_thread::sleep_for(budget);
    std::vector<double> per_second = rates(from, beside_.read());
    if (work_) per_second.push_back(static_cast<double>(done) / seconds_of(now - from.at));
    if (done > 0) between_ = std::max<int64_t>(1, done * kBetween / (now - from.at));
    return per_second;
  }

  struct Exchanged {
    Reading from, to;
    int64_t done = 0;      ///< by the calling thread
    int64_t messages = 0;  ///< sent or received
  };

  /// Until the budget is over here or there. Nothing waits for a link: who finds it full computes.
  Exchanged run(uint32_t number, Clock::duration budget) {
    Exchanged all{.from = beside_.read(), .to = {}};
    bool receives = messages_.receives();
    std::vector<MeasuredMessages::Incoming> incoming;
    const auto post = [&] {
      const uint64_t next = incoming.size();
      incoming.push_back(messages_.receive({number, next}, in_[next % kShortAhead]));
    };
    while (receives && incoming.size() < kShortAhead) post();
    size_t came = 0;
    const auto take = [&] {
      messages_.wait(*incoming[came].transfer);
      receives = *incoming[came++].size > 0;
      if (receives) post();
    };
    const auto take_what_came = [&] {
      while (receives && incoming[came].transfer->is_done()) take();
    };
    std::vector<std::shared_ptr<net::Transfer>> outgoing;
    const auto send = [&](size_t bytes) {
      const uint64_t next = outgoing.size();
      // The last one may find the link full, at both ends: who took nothing would wait for a peer
      // that waits as well.
      if (next >= kShortAhead) messages_.wait(*outgoing[next - kShortAhead], take_what_came);
      outgoing.push_back(messages_.send({number, next}, out_[next % kShortAhead], bytes));
    };
    const auto has_room = [&] {
      return outgoing.size() < kShortAhead || outgoing[outgoing.size() - kShortAhead]->is_done();
    };
    for (bool goes_on = messages_.sends() || receives; goes_on;) {
      for (int64_t n = 0; work_ && n < between_; ++n, ++all.done) work_();
      if (messages_.sends() && has_room()) send(kShortMessageBytes);
      take_what_came();
      goes_on = Clock::now() - all.from.at < budget && receives == messages_.receives();
    }
    all.to = beside_.read();
    all.messages = std::ssize(outgoing) + static_cast<int64_t>(came);
    if (messages_.sends()) send(0);
    while (receives) take();
    for (const auto& transfer : outgoing) messages_.wait(*transfer);
    return all;
  }

 private:
  MeasuredMessages messages_;
  const Computing beside_;
  std::function<void()> work_;  ///< empty: the calling thread only moves
  int64_t between_ = 1;         ///< pieces of work between two messages
  std::vector<std::shared_ptr<Block>> in_;
  std::vector<std::shared_ptr<Block>> out_;
};

/// Of the thread that loses most, per message sent and one received.
double loss_ns(const std::vector<double>& before, const ShortMessages::Exchanged& exchanged,
               const std::vector<double>& after) {
  if (before.empty() || exchanged.messages == 0) return 0;
  std::vector<int64_t> done;
  for (size_t t = 0; t + 1 < before.size(); ++t)
    done.push_back(exchanged.to.done[t] - exchanged.from.done[t]);
  done.push_back(exchanged.done);
  const double all_s = seconds(exchanged.from, exchanged.to);
  double most_s = -all_s;
  for (size_t t = 0; t < done.size(); ++t) {
    const double alone = std::min(before[t], after[t]);
    if (alone > 0) most_s = std::max(most_s, all_s - static_cast<double>(done[t]) / alone);
  }
  return 2e9 * most_s / static_cast<double>(exchanged.messages);
}

}  // namespace

Loss measure_message_loss(net::Mesh& mesh, uint32_t run, const LinkPeers& peers,
                          const LossOptions& options) {
  ShortMessages messages(mesh, run, peers, options);
  const auto part = options.budget / (2 * Loss::kExchanges + 1);
  Loss loss;
  std::vector<double> before = messages.pause(part);
  for (size_t k = 0; k < Loss::kExchanges; ++k) {
    const ShortMessages::Exchanged exchanged = messages.run(static_cast<uint32_t>(k), part);
    std::vector<double> after = messages.pause(part);
    loss.samples[k] = loss_ns(before, exchanged, after);
    before = std::move(after);
  }
  return loss;
}

}  // namespace penstock::probe
