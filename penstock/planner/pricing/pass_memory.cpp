#include "penstock/planner/pricing/pass_memory.h"

#include <algorithm>
#include <set>

#include "penstock/schedule/gradient_sets.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

// How layers share weights in a split: within a stage, which adds up their gradients when all are
// made, or across stages, which meet for a norm before they step.
struct Ties {
  Ties(const graph::ModelGraph& graph, const std::vector<StageId>& stage_of_layer) {
    for (const graph::TieGroup& group : graph::tie_groups(graph)) {
      std::set<StageId> stages;
      for (const graph::ParameterRef& use : group) {
        const StageId stage = stage_of_layer[use.layer.index()];
        if (!stages.insert(stage).second) within.insert(stage);
      }
      cross = cross || stages.size() > 1;
    }
  }

  std::set<StageId> within;
  bool cross = false;
};

}  // namespace

bool shares_weights(const Context& context, plan::WeightPolicy policy, int level, int replicas) {
  return context.on_processors && context.options.share_weights && replicas > 1 &&
         policy == plan::WeightPolicy::Flush && context.profile.precision == Precision::Float32 &&
         !steps_alone(context.model->sync()) &&
         context.model->sync() != plan::GradientSync::PowerSgd &&
         context.topology().path(level).by_reference;
}

plan::PassMemory pass_memory(const Context& context, const std::vector<LayerId>& layers,
                             int64_t message_bytes, bool steps) {
  int64_t weights = 0;
  for (const LayerId id : layers)
    weights = saturating_add(weights, context.layers[id.index()].weight_bytes);
  plan::PassMemory memory{.steps = steps};
  int64_t whole = 0;    // beside all gradients
  int64_t freed = 0;    // of what was saved
  int64_t made = 0;     // gradients of the layers behind
  int64_t kept = 0;     // the part of them that is not stepped yet
  int64_t stepped = 0;  // the rest
  for (size_t i = layers.size(); i-- > 0;) {
    const PlannedLayer& layer = context.layers[layers[i].index()];
    const int64_t own = layer.weight_bytes;
    if (kept > 0 && own > 0 && saturating_add(kept, own) > schedule::kGradientBytesTogether) {
      stepped = saturating_add(stepped, kept);
      kept = 0;
    }
    const int64_t needed = layer.working_bytes - freed;
    whole = std::max(whole, needed);
    memory.first_bytes = std::max(memory.first_bytes, saturating_add(needed, made));
    memory.last_bytes = std::max(memory.last_bytes, saturating_add(needed, weights - stepped));
    memory.only_bytes = std::max(memory.only_bytes, saturating_add(needed, kept));
    freed = saturating_add(freed, layer.stash_bytes);
    made = saturating_add(made, own);
    kept = saturating_add(kept, own);
  }
  if (!steps) {
    memory.last_bytes = saturating_add(weights, whole);
    memory.only_bytes = memory.first_bytes;
  }
  for (int64_t* bytes : {&memory.first_bytes, &memory.last_bytes, &memory.only_bytes})
    *bytes = std::max<int64_t>(*bytes - message_bytes, 0);
  return memory;
}

int64_t absent_input_bytes(const Context& context, const Split& split, const plan::Plan& plan,
                           size_t stage, const StageMemory& memory) {
  const plan::Stage& own = plan.stages[stage];
  if (!own.passes || own.replicas > 1 || plan.shares_workers() ||
      plan.weights != plan::WeightPolicy::Flush || memory.recompute)
    return 0;
  MemoryModel model =
      memory_model(context, split.strategy, split.policy, plan.micro_batches, split.slack, {});
  model.keep = split.keep_of(stage);
  int workers_from_here = 0;
  for (size_t s = stage; s < plan.stages.size(); ++s) workers_from_here += plan.stages[s].replicas;
  const int64_t kept = model.in_flight(own.replicas, workers_from_here);
  // The last forward pass takes an input in, and makes activations of it.
  const int64_t most = std::min(memory.input_bytes, own.stash_bytes);
  if (kept >= plan.micro_batches) return most;
  if (kept + 1 < plan.micro_batches) return 0;
  // The first backward pass comes before it, and needs less than later ones.
  const int64_t more =
      saturating_add(own.weight_bytes, own.working_bytes) - own.passes->first_bytes;
  return std::clamp<int64_t>(more, 0, most);
}

void add_pass_memory(const Context& context, const Split& split,
                     const std::vector<StageId>& stage_of_layer,
                     const std::vector<StageMemory>& memories, plan::Plan& plan) {
  if (!context.on_processors) return;
  const Ties ties(context.profile.graph, stage_of_layer);
  const bool together =
      context.options.global_norm || ties.cross || plan.compensation != plan::Compensation::None ||
      plan::backward_reads_newest(plan.weights) || plan.gradient_precision != FloatType::Float32;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    plan::Stage& stage = plan.stages[s];
    stage.shares_weights =
        shares_weights(context, split.policy, stage_level(context, split, s), stage.replicas);
    if (!stage.buckets.empty())
      stage.waiting_bytes = waiting_bytes(stage.weight_bytes, stage.replicas);
    const bool adds_alone = stage.replicas == 1 || stage.shares_weights;
    // Of a stage that splits its passes, I makes gradients, too.
    if (!adds_alone || traits(split.strategy).splits_backward ||
        tied_norm_bytes(context, split.stages[s]) > 0)
      continue;
    const bool steps =
        stage.replicas == 1 && !together && !ties.within.contains(StageId{static_cast<int32_t>(s)});
    stage.passes =
        pass_memory(context, split.stages[s],
                    saturating_add(memories[s].input_bytes, memories[s].output_bytes), steps);
  }
}

}  // namespace penstock::planner
