// Plans' memory of CPUs against a replay that takes and frees each layer's gradients and stashes by
// themselves.

#include "penstock/planner/pricing/pass_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "penstock/planner/pricing/pricing.h"
#include "penstock/planner/testing/testing_graphs.h"
#include "penstock/profile/processor_text.h"
#include "penstock/schedule/gradient_sets.h"
#include "penstock/schedule/plan_shape.h"
#include "penstock/simulate/memory_by_kind.h"

namespace penstock::planner {
namespace {

using plan::Strategy;
using schedule::Action;
using schedule::Op;
using testing_graphs::between;
using testing_graphs::flat_cluster;

constexpr int64_t kTogether = schedule::kGradientBytesTogether;

/// A chain with weights of up to three times what is given away together.
profile::Profile processor_chain(Rng& rng, int layers) {
  std::vector<graph::LayerNode> nodes;
  profile::Profile profile;
  for (int l = 0; l < layers; ++l) {
    nodes.push_back({.name = "l" + std::to_string(l), .kind = "test", .inputs = {}});
    nodes.back().inputs.push_back(l == 0 ? graph::ValueRef::model_input(0)
                                         : graph::ValueRef{LayerId{l - 1}, 0});
    profile::LayerCost cost{.forward_ns = 10, .backward_ns = 20, .output_bytes = {}};
    cost.weight_bytes = rng.uniform() < 0.3 ? 0 : between(rng, 1, 3 * kTogether);
    cost.stash_bytes = between(rng, 0, 2 * kTogether);
    cost.output_bytes = {between(rng, 0, kTogether / 2)};
    cost.working_bytes = cost.weight_bytes + between(rng, 0, 2 * kTogether);
    profile.costs.push_back(cost);
  }
  profile.graph = graph::ModelGraph::build(1, std::move(nodes), {{LayerId{layers - 1}, 0}});
  profile.model = "chain";
  profile.device = profile::processor_text("a CPU", 1);
  profile.source = "measured";
  profile.batch_size = 4;
  return profile;
}

/// The layers in equal parts, each on one worker.
Split equal_split(Strategy strategy, int layers, int stages) {
  Split split{.strategy = strategy,
              .policy = default_policy(strategy),
              .stages = {},
              .places = {},
              .recompute = std::vector<bool>(static_cast<size_t>(stages), false)};
  for (int s = 0; s < stages; ++s) {
    split.stages.emplace_back();
    for (int l = layers * s / stages; l < layers * (s + 1) / stages; ++l)
      split.stages.back().push_back(LayerId{l});
    split.places.push_back({s, 1});
  }
  return split;
}

/// One worker with one stage, action by action and layer by layer.
class Replay {
 public:
  Replay(const Context& context, const std::vector<LayerId>& layers, int64_t input, int64_t output)
      : input_(input), messages_(input + output) {
    for (const LayerId id : layers) layers_.push_back(context.layers[id.index()]);
    made_.resize(layers_.size());
    for (const PlannedLayer& layer : layers_) weights_ += layer.weight_bytes;
    held_ = 2 * weights_;  // and momentum
  }

  /// `waits`: inputs of later mini-batches may, too. With messages both ways.
  int64_t peak(const std::vector<Action>& actions, bool may_step, bool waits) {
    for (size_t a = 0; a < actions.size(); ++a) {
      // Stages before this one step, too, before they begin the next mini-batch.
      const bool steps = actions[a].op == Op::Step;
      next_input_ = waits || (!steps && forward_left(actions, a)) ? input_ : 0;
      switch (actions[a].op) {
        case Op::Forward:
          for (const PlannedLayer& layer : layers_) held_ += layer.stash_bytes;
          break;
        case Op::Backward:
          backward(may_step ? step_behind(actions, a) : Behind{});
          break;
        case Op::Step:
          step(actions[a - 1].op == Op::FreeWeights);
          break;
        case Op::FreeWeights:
          held_ -= weights_;
          break;
        default:
          break;
      }
      note(0);
    }
    return peak_;
  }

 private:
  struct Behind {
    bool steps = false;
    bool frees = false;
  };

  /// Before the step of the mini-batch.
  static bool forward_left(const std::vector<Action>& actions, size_t place) {
    for (size_t a = place + 1; a < actions.size() && actions[a].op != Op::Step; ++a) {
      if (actions[a].op == Op::Forward) return true;
    }
    return false;
  }

  /// As StageWorker::expect_step() looks for it.
  static Behind step_behind(const std::vector<Action>& actions, size_t place) {
    bool frees = false;
    for (size_t a = place + 1; a < actions.size(); ++a) {
      const Op op = actions[a].op;
      if (schedule::is_message(op) || op == Op::SyncGradients) continue;
      if (op == Op::Step) return {.steps = true, .frees = frees};
      if (op != Op::FreeWeights) return {};
      frees = true;
    }
    return {};
  }

  void backward(const Behind& behind) {
    int64_t together = 0;
    for (size_t l = layers_.size(); l-- > 0;) {
      const int64_t own = layers_[l].weight_bytes;
      if (together > 0 && own > 0 && together + own > kTogether) {
        if (behind.steps) step_made(l + 1, behind.frees);
        together = 0;
      }
      note(layers_[l].working_bytes - messages_);
      held_ -= layers_[l].stash_bytes;
      if (!made_[l]) held_ += own;
      made_[l] = true;
      together += own;
      note(-messages_);
    }
    if (behind.steps) step_made(0, behind.frees);
  }

  /// Of the layers from here on.
  void step_made(size_t begin, bool in_place) {
    for (size_t l = begin; l < layers_.size(); ++l) {
      if (!made_[l]) continue;
      made_[l] = false;
      if (in_place) {
        held_ -= layers_[l].weight_bytes;
      } else {
        new_version_ += layers_[l].weight_bytes;  // gradient away, version there
      }
    }
  }

  void step(bool in_place) {
    // Freed before, and written over.
    held_ += in_place ? weights_ : weights_ - new_version_;
    note(0);
    for (size_t l = 0; l < layers_.size(); ++l) held_ -= made_[l] ? layers_[l].weight_bytes : 0;
    made_.assign(layers_.size(), false);
    new_version_ = 0;
  }

  void note(int64_t working) {
    peak_ = std::max(peak_, held_ + working + 2 * messages_ - input_ + next_input_);
  }

  std::vector<PlannedLayer> layers_;
  std::vector<bool> made_;
  int64_t input_;
  int64_t messages_;  ///< one way
  int64_t next_input_ = 0;
  int64_t weights_ = 0;
  int64_t new_version_ = 0;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

struct PassCase {
  profile::Profile profile;
  Split split;
  int64_t micro_batches = 1;
};

PassCase random_pass_case(Rng& rng) {
  const std::vector<Strategy> strategies = {Strategy::Serial, Strategy::OneFOneB,
                                            Strategy::OneFOneBFlush, Strategy::GPipe};
  const Strategy strategy = strategies[static_cast<size_t>(between(rng, 0, 3))];
  const int stages = strategy == Strategy::Serial ? 1 : static_cast<int>(between(rng, 2, 4));
  const int layers = static_cast<int>(between(rng, stages, 9));
  return {processor_chain(rng, layers), equal_split(strategy, layers, stages),
          strategy == Strategy::OneFOneB ? 1 : between(rng, 1, 6)};
}

/// What the replay of so many steps needs of each worker, messages included.
std::vector<int64_t> replayed(const Context& context, const PassCase& one, const plan::Plan& plan,
                              const std::vector<int64_t>& cut_bytes, int64_t steps, bool may_step) {
  const schedule::Schedule schedule =
      schedule::lower(schedule::generate(plan.strategy, schedule::member_shape_of(plan, steps)),
                      schedule::links_of(plan));
  std::vector<int64_t> peaks;
  for (size_t s = 0; s < one.split.stages.size(); ++s) {
    Replay replay(context, one.split.stages[s], s == 0 ? 0 : cut_bytes[s - 1],
                  s < cut_bytes.size() ? cut_bytes[s] : 0);
    peaks.push_back(
        replay.peak(schedule.workers[s], may_step, plan.weights != plan::WeightPolicy::Flush));
  }
  return peaks;
}

TEST(PassMemoryProperty, PlansOfProcessorsHaveTheMemoryOfAReplayLayerByLayer) {
  int exact = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    PassCase one = random_pass_case(rng);
    PlanOptions options;
    options.global_norm = rng.uniform() < 0.2;
    const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
    const Context context(one.profile, cluster, options);
    ASSERT_TRUE(context.on_processors);
    const Priced priced = price_parts(context, one.split, one.micro_batches);
    const plan::Plan plan = price(context, one.split, one.micro_batches);
    const int64_t steps = plan.strategy == Strategy::OneFOneB ? 24 : 4;
    const std::vector<int64_t> needed =
        replayed(context, one, plan, priced.cut_bytes, steps, !options.global_norm);
    for (size_t s = 0; s < needed.size(); ++s) {
      SCOPED_TRACE(to_string(plan.strategy));
      SCOPED_TRACE(testing::Message() << "stage " << s << " of " << needed.size() << ", "
                                      << plan.micro_batches << " micro-batches");
      const plan::Stage& stage = plan.stages[s];
      const int64_t input = s == 0 ? 0 : priced.cut_bytes[s - 1];
      EXPECT_GE(stage.memory_bytes, needed[s]);
      // A large input may be missed where little else changes with the last forward pass.
      if (input > stage.stash_bytes ||
          input > stage.weight_bytes + stage.working_bytes - stage.passes->first_bytes)
        continue;
      EXPECT_EQ(stage.memory_bytes, needed[s]);
      ++exact;
    }
  }
  EXPECT_GT(exact, 300);
}

TEST(PassMemoryProperty, TheSearchNeverCountsMoreThanThePlan) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const PassCase one = random_pass_case(rng);
    const PlanOptions options;
    const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
    const Context context(one.profile, cluster, options);
    const Priced priced = price_parts(context, one.split, one.micro_batches);
    const plan::Plan plan = price(context, one.split, one.micro_batches);
    MemoryModel model = memory_model(context, plan.strategy, plan.weights, plan.micro_batches, 0,
                                     gradient_groups(context, one.split));
    const int stages = static_cast<int>(plan.stages.size());
    model.max_workers = stages;
    std::vector<StageMemory> memories = stage_memories(context, one.split, priced.cut_bytes);
    for (int s = 0; s < stages; ++s) {
      StageMemory& memory = memories[static_cast<size_t>(s)];
      memory.working_bytes = 0;  // not known while stages are searched
      EXPECT_LE(model.stage_bytes(memory, 1, stages - s),
                plan.stages[static_cast<size_t>(s)].memory_bytes)
          << to_string(plan.strategy) << ", stage " << s << " of " << stages << ", "
          << plan.micro_batches << " micro-batches";
    }
  }
}

TEST(PassMemory, ShortRunsWithoutAVersionToWriteOverAreNotBelowTheReplay) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    PassCase one = random_pass_case(rng);
    one.split = equal_split(Strategy::OneFOneB, one.profile.graph.num_layers(),
                            std::min(3, one.profile.graph.num_layers()));
    const PlanOptions options;
    const cluster::Cluster cluster = flat_cluster(4, 1'000'000'000);
    const Context context(one.profile, cluster, options);
    const Priced priced = price_parts(context, one.split, 1);
    const schedule::Schedule schedule = schedule::lower(
        schedule::generate(Strategy::OneFOneB, schedule::member_shape_of(priced.plan, 2)),
        schedule::links_of(priced.plan));
    const std::vector<MemoryBytes> found =
        simulate::memory_by_kind(schedule, simulate::costs_of(priced.plan));
    const std::vector<int64_t> needed =
        replayed(context, one, priced.plan, priced.cut_bytes, 2, true);
    for (size_t s = 0; s < needed.size(); ++s) {
      const int64_t buffers = 2 * ((s == 0 ? 0 : priced.cut_bytes[s - 1]) +
                                   (s < priced.cut_bytes.size() ? priced.cut_bytes[s] : 0));
      EXPECT_GE(found[s].sum() + buffers, needed[s]) << "stage " << s;
    }
  }
}

/// Two layers, the second with large weights.
profile::Profile two_layers() {
  Rng rng(1);
  profile::Profile profile = processor_chain(rng, 2);
  profile.costs[0].weight_bytes = 2'000'000;
  profile.costs[0].stash_bytes = 100'000;
  profile.costs[0].working_bytes = 2'300'000;
  profile.costs[1].weight_bytes = 8'000'000;
  profile.costs[1].stash_bytes = 200'000;
  profile.costs[1].working_bytes = 8'500'000;
  return profile;
}

TEST(PassMemory, ALayerAtATimeWhereTheOnlyPassSteps) {
  const profile::Profile profile = two_layers();
  const cluster::Cluster cluster = flat_cluster(1, 1'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  const std::vector<LayerId> layers = {LayerId{0}, LayerId{1}};
  EXPECT_EQ(pass_memory(context, layers, 0, true),
            (plan::PassMemory{.first_bytes = 2'300'000 - 200'000 + 8'000'000,
                              .last_bytes = 8'500'000 + 10'000'000,
                              .only_bytes = 8'500'000,
                              .steps = true}));
  EXPECT_EQ(pass_memory(context, layers, 0, false),
            (plan::PassMemory{.first_bytes = 2'300'000 - 200'000 + 8'000'000,
                              .last_bytes = 8'500'000 + 10'000'000,
                              .only_bytes = 2'300'000 - 200'000 + 8'000'000}));
  EXPECT_EQ(pass_memory(context, layers, 400'000, true).only_bytes, 8'100'000);
}

plan::Plan dp_plan(profile::Profile profile, const cluster::Cluster& cluster,
                   bool share_weights = true) {
  PlanOptions options;
  options.share_weights = share_weights;
  const Context context(profile, cluster, options);
  const Split split{.strategy = Strategy::DataParallel,
                    .policy = plan::WeightPolicy::Flush,
                    .stages = {{LayerId{0}, LayerId{1}}},
                    .places = {{0, 2}},
                    .recompute = {false}};
  return price(context, split, 2);
}

TEST(PassMemory, ReplicasOfOneProcessHaveTheirWeightsOnce) {
  const plan::Plan plan = dp_plan(two_layers(), cluster::local_cluster(2, 1'000'000'000));
  EXPECT_TRUE(plan.stages[0].shares_weights);
  EXPECT_EQ(plan.stages[0].waiting_bytes, 0);
  const schedule::Schedule schedule =
      schedule::lower(schedule::generate(plan.strategy, schedule::member_shape_of(plan, 3)), {});
  const std::vector<MemoryBytes> workers =
      simulate::memory_by_kind(schedule, simulate::costs_of(plan));
  EXPECT_EQ(workers[0][MemoryKind::Weights], 10'000'000);
  EXPECT_EQ(workers[1][MemoryKind::Weights], 0);
  for (const MemoryBytes& worker : workers)
    EXPECT_EQ(worker[MemoryKind::OptimizerState], 5'000'000);
  EXPECT_EQ(workers[0].sum(), plan.stages[0].memory_bytes);
}

TEST(PassMemory, ReplicasHaveCopiesWhereTheyAreNoThreadsOrTheOptimiserNeedsWholeWeights) {
  const cluster::Cluster threads = cluster::local_cluster(2, 1'000'000'000);
  const plan::Plan whole = dp_plan(two_layers(), threads, false);
  EXPECT_FALSE(whole.stages[0].shares_weights);
  EXPECT_FALSE(whole.stages[0].passes.has_value());
  const plan::Plan ranks = dp_plan(two_layers(), flat_cluster(2, 1'000'000'000));
  EXPECT_FALSE(ranks.stages[0].shares_weights);
  EXPECT_EQ(ranks.stages[0].waiting_bytes, 10'000'000 / 4);
  EXPECT_EQ(ranks.stages[0].memory_bytes, whole.stages[0].memory_bytes + 2'500'000);
}

/// A chain of three, of which the last two save their inputs; the first saves its output or not.
profile::Profile chain_that_saves(bool first_saves_output) {
  Rng rng(2);
  profile::Profile profile = processor_chain(rng, 3);
  const int64_t outputs[] = {400, 300, 200};
  const int64_t stashes[] = {first_saves_output ? 400 : 0, first_saves_output ? 0 : 400, 300};
  for (size_t l = 0; l < 3; ++l) {
    const graph::LayerNode& node = profile.graph.layer(LayerId{static_cast<int32_t>(l)});
    profile.costs[l].output_bytes = {outputs[l]};
    profile.costs[l].stash_bytes = stashes[l];
    profile.costs[l].saves = profile::saves_of(node, l > 0, l == 0 && first_saves_output);
  }
  return profile;
}

TEST(RemadeStash, HasTheKeptInputAmongWhatIsSaved) {
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000);
  const PlanOptions options;
  for (const bool first_saves_output : {false, true}) {
    const profile::Profile profile = chain_that_saves(first_saves_output);
    const Context context(profile, cluster, options);
    EXPECT_EQ(remade_stash_bytes(context, {LayerId{1}, LayerId{2}}, 400), 300)
        << first_saves_output;
  }
  profile::Profile unknown = chain_that_saves(false);
  for (profile::LayerCost& cost : unknown.costs) cost.saves = {};
  const Context context(unknown, cluster, options);
  EXPECT_EQ(remade_stash_bytes(context, {LayerId{1}, LayerId{2}}, 400), 700);
}

TEST(TiedNorm, NeedsTheOtherGradientTheSumAndOneInDoublePrecision) {
  profile::Profile profile = chain_that_saves(false);
  std::vector<graph::LayerNode> layers = profile.graph.layers();
  layers[2].ties = {{0, {LayerId{0}, 0}}};
  profile.graph = graph::ModelGraph::build(1, layers, profile.graph.outputs());
  profile.costs[0].weight_bytes = profile.costs[2].weight_bytes = 1000;
  profile.costs[2].tied_bytes = {1000};
  const cluster::Cluster cluster = flat_cluster(2, 1'000'000'000);
  const PlanOptions options;
  const Context context(profile, cluster, options);
  EXPECT_EQ(tied_norm_bytes(context, {LayerId{0}, LayerId{1}}), 1000 + 1000 + 2 * 1000);
  EXPECT_EQ(tied_norm_bytes(context, {LayerId{2}}), 0);
  // Stages that meet for the norm do not step before it.
  const Split split = equal_split(Strategy::OneFOneBFlush, 3, 2);
  const plan::Plan plan = price(context, split, 4);
  EXPECT_FALSE(plan.stages[0].passes.has_value());
  ASSERT_TRUE(plan.stages[1].passes.has_value());
  EXPECT_FALSE(plan.stages[1].passes->steps);
}

TEST(PassMemory, OfGpusAndEstimatesCountsAllGradientsAtAllTimes) {
  for (const bool is_estimate : {false, true}) {
    profile::Profile profile = two_layers();
    if (is_estimate)
      profile.source = "analytic";
    else
      profile.device = "a GPU";
    const plan::Plan plan = dp_plan(profile, cluster::local_cluster(2, 1'000'000'000));
    EXPECT_FALSE(plan.stages[0].passes.has_value());
    EXPECT_FALSE(plan.stages[0].shares_weights);
  }
}

}  // namespace
}  // namespace penstock::planner
