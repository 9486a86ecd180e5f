#include "penstock/planner/families/reasons.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/plural.h"
#include "penstock/util/text/units.h"

namespace penstock::planner {

namespace {

// Rounded, and exactly where that is not the same.
std::string limit_text(int64_t bytes) {
  const std::string text = format_bytes(bytes);
  return parse_bytes(text) == bytes ? text : fmt::format("{} ({} bytes)", text, bytes);
}

std::string available(const Context& context) {
  if (context.options.memory_limit_bytes)
    return limit_text(*context.options.memory_limit_bytes) + " per worker";
  const int64_t least = context.limit_bytes({0, context.workers});
  return fmt::format("{}{} per worker",
                     context.cluster.uniform() ? "" : "its devices' memory, from ",
                     limit_text(least));
}

// Names the stage that needs the most and, in it, the layer that needs the most.
std::string binding_place(const Context& context, const Split& split, size_t stage) {
  const auto bytes_of = [&](LayerId layer) {
    return saturating_add(context.layers[layer.index()].weight_bytes,
                          context.layers[layer.index()].stash_bytes);
  };
  const std::vector<LayerId>& layers = split.stages[stage];
  const LayerId layer = *std::max_element(layers.begin(), layers.end(), [&](LayerId a, LayerId b) {
    return bytes_of(a) < bytes_of(b);
  });
  return fmt::format(
      "stage {} needs the most, in it layer '{}' ({} of weights, {} of activations per "
      "micro-batch)",
      stage, context.profile.graph.layer(layer).name,
      format_bytes(context.layers[layer.index()].weight_bytes),
      format_bytes(context.layers[layer.index()].stash_bytes));
}

std::string config_of(const Split& split) {
  if (!split.worker_of_replica.empty())
    return fmt::format("into {} stages on {} workers", split.stages.size(), split.num_workers());
  std::string config;
  for (const int count : split.replicas())
    config += fmt::format("{}{}", config.empty() ? "" : "-", count);
  return config.size() > 40 ? fmt::format("into {} stages", split.stages.size()) : config;
}

std::string recomputing(const Split& split) {
  const auto count = std::count(split.recompute.begin(), split.recompute.end(), true);
  return count == 0 ? ""
                    : fmt::format(", {} of {} stages running their forward pass again", count,
                                  split.stages.size());
}

}  // namespace

std::string does_not_fit(const Context& context, plan::Strategy strategy) {
  return fmt::format("no {} plan for {} fits into {}", to_string(strategy),
                     plural(context.workers, "worker"), available(context));
}

std::string why_nothing_fits(const Context& context, SplitFinder& finder, const Family& family) {
  const auto least = finder.least(family);
  if (!least)
    return does_not_fit(context, family.strategy) + ": it would need more than 2^63 bytes";
  // Where the cuts are too many to try them all, another plan may yet fit.
  const std::string verdict =
      least->proven
          ? does_not_fit(context, family.strategy)
          : fmt::format("found no {} plan for {} that fits into {}", to_string(family.strategy),
                        plural(context.workers, "worker"), available(context));
  const auto most = std::max_element(least->stage_bytes.begin(), least->stage_bytes.end()) -
                    least->stage_bytes.begin();
  return fmt::format("{}: the minimum {} is {} ({} bytes, split {}{}); {}", verdict,
                     least->proven ? "required" : "found", format_bytes(least->bytes), least->bytes,
                     config_of(least->split), recomputing(least->split),
                     binding_place(context, least->split, static_cast<size_t>(most)));
}

int64_t beyond_limit(const Context& context, const Split& split, const plan::Plan& plan) {
  int64_t most = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (stage_fits(context, split, plan, s)) continue;
    most = std::max(most, plan.stages[s].memory_bytes - stage_limit_bytes(context, split, s));
  }
  return most;
}

std::string over_limit(const Context& context, const Split& split, const plan::Plan& plan) {
  size_t binding = plan.stages.size();
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (stage_fits(context, split, plan, s)) continue;
    if (binding == plan.stages.size() ||
        plan.stages[s].memory_bytes > plan.stages[binding].memory_bytes)
      binding = s;
  }
  if (binding == plan.stages.size()) return "";
  const int64_t needed = plan.stages[binding].memory_bytes;
  return fmt::format("{}: split {} needs {} ({} bytes); {}", does_not_fit(context, split.strategy),
                     config_of(split), format_bytes(needed), needed,
                     binding_place(context, split, binding));
}

}  // namespace penstock::planner
