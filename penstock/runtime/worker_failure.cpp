#include "penstock/runtime/worker_failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>
#include <string>
#include <string_view>

#include "penstock/runtime/fabric/status_board.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/text/units.h"

namespace penstock::runtime {

using schedule::Action;
using schedule::Op;

namespace {

/// "the forward pass of micro-batch 3 (0F3@3)".
std::string in_words(const Action& action) {
  const auto of_micro_batch = [&](std::string_view what) {
    return fmt::format("{} of micro-batch {} ({})", what, action.micro_batch.value,
                       schedule::to_text(action));
  };
  switch (action.op) {
    case Op::Forward:
      return of_micro_batch("the forward pass");
    case Op::Backward:
      return of_micro_batch("the backward pass");
    case Op::BackwardInput:
      return of_micro_batch("the backward pass to the inputs");
    case Op::BackwardWeight:
      return of_micro_batch("the backward pass to the weights");
    case Op::Recompute:
      return of_micro_batch("the repeated forward pass");
    case Op::Step:
      return fmt::format("the optimiser step {}", schedule::to_text(action));
    default:
      return schedule::to_text(action);
  }
}

std::string out_of_device_memory(WorkerId worker, const Run& run, const WorkerDevice& on) {
  const at::Device device = on.device();
  const model::DeviceMemory memory = on.devices().memory(device);
  std::string text = fmt::format("{} ({}) is out of memory: tensors take {} of {}", device.str(),
                                 on.devices().name(device), format_bytes(memory.allocated),
                                 format_bytes(memory.total));
  if (worker.index() >= run.pipeline.planned_memory_bytes.size()) return text;
  int64_t others = 0;
  for (size_t w = 0; w < run.pipeline.planned_memory_bytes.size(); ++w) {
    const WorkerId other{static_cast<int32_t>(w)};
    if (other != worker && run.devices.holds(other) && run.devices.of(other) == device)
      others += run.pipeline.planned_memory_bytes[w];
  }
  text += fmt::format("; the plan predicted {} for this worker",
                      format_bytes(run.pipeline.planned_memory_bytes[worker.index()]));
  if (others > 0)
    text += fmt::format(" and {} for the others on this device", format_bytes(others));
  return text + "; smaller micro-batches, recomputation or more stages need less";
}

}  // namespace

std::exception_ptr failure_of(WorkerId worker, const Run& run, const WorkerDevice& device,
                              const Action* action) {
  const auto described = [&](const char* what) {
    const schedule::ScheduleShape& shape = run.schedule().shape;
    const std::string place =
        action == nullptr ? "start" : in_words(in_plan(schedule::TeamPlaces(shape.teams), *action));
    const StageId stage = action == nullptr ? run.table.first_stage_of(worker) : action->stage;
    return std::make_exception_ptr(RuntimeError(fmt::format(
        "worker {} ({}) failed in {}: {}", worker.value, stage_label(shape, stage), place, what)));
  };
  try {
    throw;
  } catch (const TimeoutError&) {
    return std::current_exception();
  } catch (const InternalError&) {
    return std::current_exception();
  } catch (const c10::Error& error) {
    if (model::is_out_of_memory(error) && !device.is_host())
      return described(out_of_device_memory(worker, run, device).c_str());
    return described(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return described("out of memory");
  } catch (const std::exception& error) {
    return described(error.what());
  } catch (...) {
    return described("unknown exception");
  }
}

}  // namespace penstock::runtime
