#include "penstock/runtime/pass/offloaded_pass.h"

#include <memory>
#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

using schedule::Action;

namespace {

/// Whether what arrives for the worker's stage is in memory that no other stage uses: between
/// stages on one device of a process tensors go by reference.
bool is_alone_on_device(const Run& run, WorkerId worker) {
  if (run.table.held_by(worker).size() > 1) return false;
  for (int32_t w = 0; w < run.table.num_workers(); ++w) {
    const WorkerId other{w};
    if (other != worker && run.devices.holds(other) &&
        run.devices.of(other) == run.devices.of(worker))
      return false;
  }
  return true;
}

/// Later work waits for what LOAD brings.
void take_back(OffloadedMemory& memory) {
  if (memory.moved == nullptr) return;
  memory.moved->wait();
  memory.moved = nullptr;
}

}  // namespace

OffloadedPass::OffloadedPass(const StageContext& context, StageSums& sums, SegmentEnds ends)
    : TapePass(context, sums, std::move(ends)),
      owns_inputs_(is_alone_on_device(context.run, context.replica.worker)) {}

model::LossResult OffloadedPass::run(const Action& action, InFlight& record,
                                     const BeforeLayer& before_layer) {
  OffloadedMemory& memory = record.offloaded;
  if (owns_inputs_) memory.moving = storages_of(record.inputs);
  StashWatch watch;
  model::LossResult loss = TapePass::run(action, record, before_layer);
  const std::vector<WeakStorage> made = watch.made();
  memory.moving.insert(memory.moving.end(), made.begin(), made.end());
  // Others may still have to read them.
  add_storages(memory.stays, record.outputs);
  add_storages(memory.stays, record.carried);
  return loss;
}

std::shared_ptr<HostStash> OffloadedPass::offload(InFlight& record) {
  OffloadedMemory& memory = record.offloaded;
  PENSTOCK_CHECK(record.activations.tape && !memory.moved, "stage", context_.stage(),
                 "cannot move a micro-batch");
  add_storages(memory.stays, context_.replica.buffers);
  memory.moved = std::make_shared<HostStash>(context_.device(), memory.moving, memory.stays);
  memory.moving.clear();
  memory.stays.clear();
  return memory.moved;
}

void OffloadedPass::load(InFlight& record) {
  PENSTOCK_CHECK(record.offloaded.moved != nullptr, "stage", context_.stage(),
                 "has not moved the micro-batch");
  record.offloaded.moved->load();
}

void OffloadedPass::backward(const Action& action, InFlight& record) {
  take_back(record.offloaded);
  TapePass::backward(action, record);
}

void OffloadedPass::backward_inputs(const Action& action, InFlight& record) {
  take_back(record.offloaded);
  TapePass::backward_inputs(action, record);
}

}  // namespace penstock::runtime
