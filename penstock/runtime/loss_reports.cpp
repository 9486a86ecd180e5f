#include "penstock/runtime/loss_reports.h"

#include <utility>

namespace penstock::runtime {

using schedule::Action;

void LossReports::add(const Action& action, model::LossResult loss) {
  if (!loss.unread.defined()) return report(action, loss.loss_sum, loss.correct);
  unread_.push_back({action, context_.device().give({std::move(loss.unread)}, /*to_host=*/true)});
  report(/*all=*/false);
}

void LossReports::report(bool all) {
  while (!unread_.empty()) {
    const Unread& next = unread_.front();
    const model::EventPtr& ready = next.numbers.ready;
    if (ready && !ready->is_done()) {
      if (!all) return;
      ready->wait_on_host();
    }
    const double* const numbers = next.numbers.tensors.front().data_ptr<double>();
    report(next.action, numbers[0], static_cast<int64_t>(numbers[1]));
    unread_.pop_front();
  }
}

void LossReports::report(const Action& action, double loss_sum, int64_t correct) {
  context_.fabric.report(action.mini_batch, action.micro_batch,
                         {.loss_sum = loss_sum,
                          .correct = correct,
                          .samples = context_.run.source().samples(action.micro_batch)});
}

}  // namespace penstock::runtime
