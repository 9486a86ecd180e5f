#include "penstock/planner/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/util/arithmetic.h"
#include "penstock/util/units.h"

namespace penstock::planner {

using plan::Plan;
using plan::Stage;

namespace {

// Filling and draining alone leave a simulated pipeline above this share of its steady rate.
constexpr double kNearSteady = 0.95;

double stage_ns(const Context& context, const Plan& plan, const Stage& stage) {
  return context.model->stage_ns({stage.compute_ns(), stage.step_ns, stage.weight_bytes}, stage.replicas, plan.micro_batches);
}

std::string slowest_part(const Context& context, const Plan& plan) {
  size_t slowest = 0;
  for (size_t s = 1; s < plan.stages.size(); ++s) {
    if (stage_ns(context, plan, plan.stages[s]) > stage_ns(context, plan, plan.stages[slowest])) slowest = s;
  }
  const Stage& stage = plan.stages[slowest];
  if (std::llround(std::min(stage_ns(context, plan, stage), 9e18)) < plan.bottleneck_ns) {
    return fmt::format("The slowest part is a link between stages: {} per micro-batch.", format_duration(plan.bottleneck_ns));
  }
  return fmt::format("The slowest part is stage {} ({}), {} per micro-batch.", slowest, layer_range(stage.layers),
                     format_duration(plan.bottleneck_ns));
}

// The share of a replicated stage's time in which it synchronises gradients.
double sync_share(const Plan& plan, const Stage& stage) {
  const double computing = static_cast<double>(ceil_div(plan.micro_batches, stage.replicas)) * static_cast<double>(stage.compute_ns());
  const double all = computing + static_cast<double>(stage.sync_ns) + static_cast<double>(stage.step_ns);
  return all > 0 ? static_cast<double>(stage.sync_ns) / all : 0;
}

std::string name_of(const Plan& plan) {
  if (plan.strategy == "dp") return fmt::format("Data parallelism over {} workers", plan.num_workers());
  if (plan.strategy == "serial") return "One worker alone";
  if (plan.strategy == "mp") return fmt::format("Model parallelism ({})", short_config(plan));
  return fmt::format("{} ({})", plan.strategy, short_config(plan));
}

std::string comparison(const Plan& plan, const Plan& other) {
  const double ratio = plan.throughput_samples_per_s / other.throughput_samples_per_s;
  const std::string name = name_of(other);
  if (ratio < 0.995) return fmt::format("{} is predicted to be {:.2f}x as fast.", name, 1 / ratio);
  std::string why = ".";
  if (other.strategy == "dp" && other.num_workers() > 1) {
    why = fmt::format(": {:.0f}% of its time is gradient synchronisation.", 100 * sync_share(other, other.stages[0]));
  } else if (other.strategy == "mp") {
    why = ": only one micro-batch is under way at a time.";
  } else if (other.strategy == "gpipe" || other.strategy == "1f1b-flush") {
    why = ": the pipeline drains before every step.";
  }
  if (ratio < 1.005) return fmt::format("{} would take as long{}", name, why);
  return fmt::format("{} would take {:.2f}x as long{}", name, ratio, why);
}

}  // namespace

std::string short_config(const Plan& plan) {
  std::string text;
  for (size_t begin = 0; begin < plan.stages.size();) {
    size_t end = begin + 1;
    while (end < plan.stages.size() && plan.stages[end].replicas == plan.stages[begin].replicas) ++end;
    if (end - begin < 4) end = begin + 1;
    text += fmt::format("{}{}", text.empty() ? "" : "-", plan.stages[begin].replicas);
    if (end - begin > 1) text += fmt::format("x{}", end - begin);
    begin = end;
  }
  if (text.size() > 40) return fmt::format("{} stages on {} workers", plan.stages.size(), plan.num_workers());
  return text;
}

std::string layer_range(const std::vector<std::string>& layers) {
  return layers.size() == 1 ? layers.front() : fmt::format("{} .. {}", layers.front(), layers.back());
}

std::vector<std::string> notes_on_plan(const Context& context, const Plan& plan) {
  std::vector<std::string> notes;
  notes.push_back(slowest_part(context, plan));
  if (plan.num_workers() < context.workers) {
    notes.push_back(
        fmt::format("{} of {} workers are used: more would not make the slowest part faster.", plan.num_workers(), context.workers));
  }
  if (plan.stages.size() == 1 && plan.num_workers() > 1) {
    notes.push_back(fmt::format("{:.0f}% of its time is gradient synchronisation.", 100 * sync_share(plan, plan.stages[0])));
  }
  const double steady_per_s =
      static_cast<double>(plan.micro_batch_size) * 1e9 / static_cast<double>(std::max<int64_t>(plan.bottleneck_ns, 1));
  const bool overlaps = plan.strategy == "1f1b" || plan.strategy == "2bw";
  if (overlaps && plan.throughput_samples_per_s < kNearSteady * steady_per_s) {
    notes.push_back(
        fmt::format("Simulated, it reaches {:.0f}% of what its slowest part allows: with {} in flight per input worker, messages are not "
                    "hidden completely.",
                    100 * plan.throughput_samples_per_s / steady_per_s, plan.depth));
  }
  const simulate::Network& network = context.model->network();
  if (network.levels_joined > 1) {
    notes.push_back(
        fmt::format("The cluster has {} network levels; this plan treats them as one, as slow as the slowest ({}, {} latency in all).",
                    network.levels_joined, format_bandwidth(network.bandwidth_bytes_per_s), format_duration(network.latency_ns)));
  }
  if (context.profile.batch_size == 0) {
    notes.push_back("The profile does not say its batch size: throughput counts each micro-batch as one sample.");
  }
  return notes;
}

std::vector<std::string> notes_on_alternatives(const Plan& plan, const std::vector<Plan>& others) {
  std::vector<std::string> notes;
  std::string other_steps;
  for (const Plan& other : others) {
    if (other.strategy == plan.strategy) continue;
    if (other.throughput_samples_per_s > 0 && plan.throughput_samples_per_s > 0) notes.push_back(comparison(plan, other));
    if (other.micro_batches != plan.micro_batches) {
      other_steps +=
          fmt::format("{}{} for {}", other_steps.empty() ? "" : ", ", other.micro_batches * other.micro_batch_size, other.strategy);
    }
  }
  if (!other_steps.empty()) {
    notes.push_back(fmt::format("An optimiser step covers {} samples here, against {}: throughputs compare samples, not steps.",
                                plan.micro_batches * plan.micro_batch_size, other_steps));
  }
  return notes;
}

}  // namespace penstock::planner
