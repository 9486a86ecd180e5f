#include "penstock/runtime/endless_walk.h"

#include <utility>

namespace penstock::runtime {

EndlessWalk::EndlessWalk(WorkerId worker, const Run& run, Fabric& fabric, const StageModule& module,
                         WorkerTimeline& timeline, Blocking block)
    : worker_(worker),
      run_(run),
      fabric_(fabric),
      module_(module),
      timeline_(timeline),
      block_(std::move(block)),
      cursor_(run.request.endless->cursor(worker)) {}

bool EndlessWalk::next() {
  while (run_.request.endless->next(cursor_, action_)) {
    if (takes_part()) return true;
    // They come in the order of the micro-batches.
    if (schedule::makes_weight_gradients(action_.op)) return false;
  }
  return false;
}

bool EndlessWalk::takes_part() {
  const int64_t number = action_.mini_batch.value;
  // The message that says so has to be taken from every source.
  if (number >= end_) return number == end_ && action_.op == schedule::Op::RecvForward;
  if (number <= last_entered_ || !module_.source_stages().empty()) return true;
  timeline_.keep_pace();
  if (!next_is_there(action_.micro_batch)) {
    end_before(action_.micro_batch);
    return false;
  }
  last_entered_ = number;
  return true;
}

bool EndlessWalk::next_is_there(MicroBatchId micro_batch) {
  fabric_.board().set(worker_, StatusBoard::State::Waiting, action_);
  for (;;) {
    if (fabric_.failed()) throw Aborted{};
    if (run_.options().stop != nullptr && run_.options().stop->load(std::memory_order_relaxed))
      return false;
    const BatchSource::Next next = run_.request.stream->next(micro_batch);
    if (next == BatchSource::Next::Ended) return false;
    if (next == BatchSource::Next::Ready)
      return fabric_.begin(worker_, MiniBatchId{micro_batch.value});
  }
}

void EndlessWalk::end_before(MicroBatchId micro_batch) {
  if (end_ <= micro_batch.value) return;
  end_ = micro_batch.value;
  for (const StageId to : module_.target_stages()) {
    const Message message{false, module_.stage(), to, micro_batch};
    model::Tensors none(module_.outputs_to(to).size());
    block_([&](Wait& limits) { return fabric_.send(message, std::move(none), limits); });
  }
}

}  // namespace penstock::runtime
