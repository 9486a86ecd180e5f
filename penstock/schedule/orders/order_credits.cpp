#include "penstock/schedule/orders/order_credits.h"

#include <optional>

namespace penstock::schedule {
namespace {

/// Runs the lists without times, as far as they get.
class CreditRun {
 public:
  CreditRun(const OrderProblem& problem, const Order& order)
      : problem_(problem),
        order_(order),
        position_(order.size()),
        sends_(order.size()),
        waits_(cells()),
        sent_(cells()),
        taken_(cells()) {}

  bool ends() {
    std::vector<size_t> awake;
    for (size_t w = 0; w < order_.size(); ++w) awake.push_back(w);
    while (!awake.empty()) {
      const size_t worker = awake.back();
      awake.pop_back();
      go_on(worker, awake);
    }
    for (size_t w = 0; w < order_.size(); ++w) {
      if (position_[w] < order_[w].size()) return false;
    }
    return true;
  }

 private:
  /// A message by the step that makes it: the channel's messages are those of its link, direction,
  /// sender and receiver, in the order of their sends.
  struct Message {
    size_t id = 0;       ///< cell of the step, in its direction
    size_t channel = 0;  ///< likewise, of the first micro-batch between the two workers
    size_t receiver = 0;
  };

  size_t cells() const {
    return 2 * static_cast<size_t>(problem_.num_stages()) *
           static_cast<size_t>(problem_.num_micro_batches);
  }
  size_t id(const OrderStep& step) const {
    const size_t direction = step.op == Op::Forward ? 0 : 1;
    return (direction * static_cast<size_t>(problem_.num_stages()) +
            static_cast<size_t>(step.stage)) *
               static_cast<size_t>(problem_.num_micro_batches) +
           static_cast<size_t>(step.micro_batch);
  }
  int32_t worker_of(int32_t stage, int32_t micro_batch) const {
    return problem_.stages[static_cast<size_t>(stage)].worker_of(micro_batch);
  }
  /// What `step` hands to another worker.
  std::optional<Message> message_of(const OrderStep& step) const {
    if (step.op == Op::BackwardWeight) return std::nullopt;
    const int32_t next = step.stage + (step.op == Op::Forward ? 1 : -1);
    if (next < 0 || next == problem_.num_stages()) return std::nullopt;
    const int32_t sender = worker_of(step.stage, step.micro_batch);
    const int32_t receiver = worker_of(next, step.micro_batch);
    if (sender == receiver) return std::nullopt;
    int32_t first = 0;
    while (worker_of(step.stage, first) != sender || worker_of(next, first) != receiver) ++first;
    return Message{.id = id(step),
                   .channel = id({step.op, step.stage, first}),
                   .receiver = static_cast<size_t>(receiver)};
  }

  void go_on(size_t worker, std::vector<size_t>& awake) {
    for (size_t& at = position_[worker]; at < order_[worker].size(); ++at) {
      const OrderStep& step = order_[worker][at];
      // sends_: the step is done, and its message could not leave.
      if (!sends_[worker] && !takes_input(step, worker, awake)) return;
      if (const auto message = message_of(step)) {
        sends_[worker] = sent_[message->channel] > taken_[message->channel];
        if (sends_[worker]) return;
        ++sent_[message->channel];
        waits_[message->id] = true;
        awake.push_back(message->receiver);
      }
    }
  }
  /// False while the message that the step needs is not there.
  bool takes_input(const OrderStep& step, size_t worker, std::vector<size_t>& awake) {
    if (step.op == Op::BackwardWeight) return true;
    const int32_t from = step.stage + (step.op == Op::Forward ? -1 : 1);
    if (from < 0 || from == problem_.num_stages()) return true;
    const auto message = message_of({step.op, from, step.micro_batch});
    if (!message) return true;
    if (!waits_[message->id]) return false;
    ++taken_[message->channel];
    const auto sender = static_cast<size_t>(worker_of(from, step.micro_batch));
    if (sends_[sender] && sender != worker) awake.push_back(sender);
    return true;
  }

  const OrderProblem& problem_;
  const Order& order_;
  std::vector<size_t> position_;  ///< per worker
  std::vector<bool> sends_;       ///< per worker
  std::vector<bool> waits_;       ///< per message: sent
  std::vector<int32_t> sent_;     ///< per channel
  std::vector<int32_t> taken_;
};

}  // namespace

bool runs_with_one_credit(const OrderProblem& problem, const Order& order) {
  return CreditRun(problem, order).ends();
}

}  // namespace penstock::schedule
