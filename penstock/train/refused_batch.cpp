#include "penstock/train/refused_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "penstock/model/batch_limits.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"

namespace penstock::train {

namespace {

/// Sizes of the micro-batches of a step.
std::set<int64_t> parts_of(const BatchCut& cut, MiniBatchId step) {
  std::set<int64_t> sizes;
  const int64_t first = step.value * cut.micro_batches;
  const int64_t end = std::min(first + cut.micro_batches, cut.num_micro_batches());
  for (int64_t b = first; b < end; ++b) {
    const BatchCut::Range range = cut.range(MicroBatchId{b});
    sizes.insert(range.end - range.begin);
  }
  return sizes;
}

/// Of the first layer that refuses so many samples; empty: none does.
std::string refusal(const model::Model& model, int64_t samples) {
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    const auto* const limits = dynamic_cast<const model::LimitsBatches*>(&model.layer(id));
    if (limits == nullptr) continue;
    const std::string why = limits->why_not(samples, model.output_shapes(id));
    if (!why.empty()) {
      return fmt::format("layer '{}' cannot train on a micro-batch of {}: {}",
                         model.graph().layer(id).name, plural(samples, "sample"), why);
    }
  }
  return {};
}

}  // namespace

std::optional<RefusedBatch> refused_batch(const model::Model& model, const BatchCut& cut) {
  const int64_t steps = cut.num_mini_batches();
  if (steps == 0) return std::nullopt;
  for (const int64_t step : {int64_t{0}, steps - 1}) {
    const MiniBatchId id{step};
    for (const int64_t size : parts_of(cut, id)) {
      std::string why = refusal(model, size);
      if (why.empty()) continue;
      const int64_t samples = cut.mini_batch_samples(id);
      return RefusedBatch{.why = std::move(why),
                          .samples = samples,
                          .of = cut.samples,
                          .parts = cut.micro_batches,
                          .is_rest = step > 0 && samples < cut.mini_batch_size};
    }
  }
  return std::nullopt;
}

std::optional<RefusedBatch> refused_batch(const model::Model& model, const TrainOptions& options,
                                          int64_t samples) {
  const int64_t size = options.mini_batch_size;
  int64_t seen = options.drop_last || options.carry_state ? samples - samples % size : samples;
  if (options.max_steps > 0) seen = std::min(seen, saturating_mul(options.max_steps, size));
  return refused_batch(model, BatchCut(seen, size, options.plan.micro_batches));
}

std::string explain(const RefusedBatch& refused, std::string_view drop_last) {
  if (refused.is_rest) {
    return fmt::format(
        "the last step of an epoch would have {} of {}, and {}; leave out what does not fill a "
        "step ({}), or choose another batch size",
        refused.samples, plural(refused.of, "training sample"), refused.why, drop_last);
  }
  return fmt::format(
      "a step of {} in {}: {}; expected {}", plural(refused.samples, "sample"),
      plural(refused.parts, "micro-batch"), refused.why,
      refused.parts > 1 ? "fewer micro-batches or a larger batch size" : "a larger batch size");
}

}  // namespace penstock::train
