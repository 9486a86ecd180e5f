#include "penstock/planner/notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "penstock/planner/traffic.h"
#include "penstock/util/arithmetic.h"
#include "penstock/util/units.h"

namespace penstock::planner {

using plan::Plan;
using plan::Stage;

namespace {

// Filling and draining alone leave a simulated pipeline above this share of its steady rate.
constexpr double kNearSteady = 0.95;

double stage_ns(const Context& context, const Plan& plan, const Stage& stage) {
  const int level = context.topology().level_of({stage.first_worker, stage.replicas});
  return context.model->stage_ns({stage.compute_ns(), stage.step_ns, stage.weight_bytes}, stage.replicas, level, plan.micro_batches);
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

// Long runs of equal stages by their number.
std::string short_config(const std::string& config) {
  std::vector<std::string> counts{""};
  for (const char c : config) {
    if (c == '-') {
      counts.emplace_back();
    } else {
      counts.back() += c;
    }
  }
  std::string text;
  for (size_t begin = 0; begin < counts.size();) {
    size_t end = begin + 1;
    while (end < counts.size() && counts[end] == counts[begin]) ++end;
    if (end - begin < 4) end = begin + 1;
    text += fmt::format("{}{}", text.empty() ? "" : "-", counts[begin]);
    if (end - begin > 1) text += fmt::format("x{}", end - begin);
    begin = end;
  }
  return text.size() > 40 ? fmt::format("{} stages", counts.size()) : text;
}

std::string name_of(const plan::Alternative& row) {
  if (row.strategy == "dp") return fmt::format("Data parallelism over {} workers", row.config);
  if (row.strategy == "serial") return "One worker alone";
  const std::string config = short_config(row.config);
  if (row.strategy == "mp") return fmt::format("Model parallelism ({})", config);
  return fmt::format("{} ({})", row.strategy, config);
}

// What holds a family back, as far as that can be said without looking at its rivals.
std::string weakness(const std::string& strategy, const Plan* plan) {
  if (strategy == "dp" && plan != nullptr && plan->num_workers() > 1) {
    return fmt::format("{:.0f}% of its time is gradient synchronisation", 100 * sync_share(*plan, plan->stages[0]));
  }
  if (strategy == "serial") return "one worker does everything";
  if (strategy == "mp") return "only one micro-batch is under way at a time";
  if (strategy == "hybrid") return "all wait for the last layers, and for each other at every step";
  if (strategy == "gpipe" || strategy == "1f1b-flush") return "the pipeline drains before every step";
  if (strategy == "interleaved") return "the pipeline drains before every step, and messages are several times as many; priced by formula";
  if (plan == nullptr || plan->throughput_samples_per_s <= 0) return "";
  const double reached = plan->throughput_samples_per_s * static_cast<double>(std::max<int64_t>(plan->bottleneck_ns, 1)) /
                         (1e9 * static_cast<double>(plan->micro_batch_size));
  if (reached < kNearSteady) return fmt::format("messages and synchronisation leave it {:.0f}% of its slowest part's rate", 100 * reached);
  return "its slowest part takes longer";
}

std::string ratio_text(double ratio) {
  if (ratio < 0.995) return fmt::format("is predicted to be {:.2f}x as fast", 1 / ratio);
  return ratio < 1.005 ? "would take as long" : fmt::format("would take {:.2f}x as long", ratio);
}

// Why "auto" leaves a faster family alone.
std::string why_not_picked(const plan::Alternative& row) {
  if (row.strategy == "interleaved") return "no schedule of it can be run yet";
  if (row.strategy == "2bw") return "auto does not change how weights are kept: ask for it by name";
  return "auto chooses among serial, dp and 1f1b: ask for it by name";
}

std::string winning_reason(const Context& context, const Plan& winner) {
  if (winner.strategy == "serial") return context.workers == 1 ? "The only worker." : "The winner: more workers would only add messages.";
  if (winner.strategy == "dp") {
    return fmt::format("The winner: data parallelism is best, {:.0f}% of its time is gradient synchronisation.",
                       100 * sync_share(winner, winner.stages[0]));
  }
  return "The winner. " + slowest_part(context, winner);
}

}  // namespace

std::string short_config(const Plan& plan) { return short_config(plan.config()); }

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
    notes.push_back(
        fmt::format("Data parallelism: {:.0f}% of its time is gradient synchronisation.", 100 * sync_share(plan, plan.stages[0])));
  }
  const auto again = std::count_if(plan.stages.begin(), plan.stages.end(), [](const Stage& stage) { return stage.recompute; });
  if (again > 0) {
    notes.push_back(
        fmt::format("{} of {} stages run their forward pass again instead of keeping its activations.", again, plan.stages.size()));
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
  if (plan.optimality_gap > 0) {
    notes.push_back(fmt::format("The cuts are too many to try them all: the slowest part may be up to {:.2f}% above the least possible.",
                                100 * plan.optimality_gap));
  }
  if (context.profile.batch_size == 0) {
    notes.push_back("The profile does not say its batch size: throughput counts each micro-batch as one sample.");
  }
  return notes;
}

void explain_rows(const Context& context, Families& families, const Plan& winner, std::vector<FamilyRow>& rows) {
  for (FamilyRow& row : rows) {
    plan::Alternative& entry = row.entry;
    if (!entry.note.empty()) continue;
    if (entry.strategy == winner.strategy) {
      entry.note = winning_reason(context, winner);
      continue;
    }
    const Plan* plan = row.planned ? &*families.standard(entry.strategy).plan : nullptr;
    const double ratio = winner.throughput_samples_per_s / std::max(entry.throughput_samples_per_s, 1e-300);
    const std::string why = ratio < 0.995 ? why_not_picked(entry) : weakness(entry.strategy, plan);
    entry.note = fmt::format("{}{}{}.", ratio_text(ratio), why.empty() ? "" : ": ", why);
  }
}

std::vector<std::string> notes_on_rows(const Plan& winner, const std::vector<FamilyRow>& rows, bool automatic) {
  std::vector<std::string> notes;
  std::string other_steps;
  for (const FamilyRow& row : rows) {
    const plan::Alternative& entry = row.entry;
    if (entry.strategy == winner.strategy) continue;
    if (entry.throughput_samples_per_s <= 0) {
      notes.push_back(fmt::format("Left out: {}: {}.", entry.strategy, entry.note));
      continue;
    }
    const bool faster = entry.throughput_samples_per_s * 0.995 > winner.throughput_samples_per_s;
    const std::string note = faster && !automatic ? entry.note.substr(0, entry.note.find(':')) : entry.note;
    notes.push_back(fmt::format("{} {}{}", name_of(entry), note, note.ends_with('.') ? "" : "."));
    if (entry.micro_batches != winner.micro_batches && entry.micro_batches > 0) {
      other_steps +=
          fmt::format("{}{} for {}", other_steps.empty() ? "" : ", ", entry.micro_batches * winner.micro_batch_size, entry.strategy);
    }
  }
  if (!other_steps.empty()) {
    notes.push_back(fmt::format("An optimiser step covers {} samples here, against {}: throughputs compare samples, not steps.",
                                winner.micro_batches * winner.micro_batch_size, other_steps));
  }
  return notes;
}

}  // namespace penstock::planner
