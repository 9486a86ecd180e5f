#include "penstock/job/stream/stream_checks.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <vector>

#include "penstock/model/batch_limits.h"
#include "penstock/util/error.h"
#include "penstock/util/text/units.h"

namespace penstock::job {

namespace {

/// Bytes that a layer makes of one frame.
int64_t output_bytes(const model::Model& model, LayerId layer) {
  int64_t bytes = 0;
  for (const model::Shape& shape : model.output_shapes(layer)) {
    int64_t numbers = sizeof(float);
    for (const int64_t side : shape) numbers *= side;
    bytes += numbers;
  }
  return bytes;
}

}  // namespace

void check_norms(const model::Model& model, const frames::FrameSize& size) {
  const graph::ModelGraph& graph = model.graph();
  for (int l = 0; l < graph.num_layers(); ++l) {
    const LayerId id{l};
    const auto* const limits = dynamic_cast<const model::LimitsBatches*>(&model.layer(id));
    if (limits == nullptr || limits->why_not(1, model.output_shapes(id)).empty()) continue;
    throw ConfigError(fmt::format(
        "--size: of a frame of {} one number per channel is left in layer '{}' of '{}', and batch "
        "normalisation needs more: take larger frames",
        to_string(size), graph.layer(id).name, model.name()));
  }
}

void check_profile_size(const profile::Profile& profile, const model::Model& model,
                        frames::Task task, const frames::FrameSize& size, const std::string& path) {
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const std::vector<int64_t>& outputs = profile.costs[static_cast<size_t>(l)].output_bytes;
    const int64_t measured = std::accumulate(outputs.begin(), outputs.end(), int64_t{0});
    const int64_t here = output_bytes(model, LayerId{l});
    if (measured == here) continue;
    throw ConfigError(fmt::format(
        "the profile {} is of frames of another size or of another task: layer '{}' makes {} of a "
        "frame there, {} of one of {} for --task {}; measure anew (penstock profile --model {} "
        "--task {} --input {}x{}x{}, with the model's options), or leave --profile out",
        path, model.graph().layer(LayerId{l}).name, format_bytes(measured), format_bytes(here),
        to_string(size), to_string(task), model.name(), to_string(task), size.channels, size.height,
        size.width));
  }
}

void check_plan_layers(const plan::Plan& plan, const model::Model& model, frames::Task task,
                       const std::string& path) {
  try {
    plan::stage_of_layer(plan, model.graph());
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "{} is not a plan for '{}' as it is for --task {} with these options of the model: {}",
        path, model.name(), to_string(task), error.what()));
  }
  if (plan.teams().empty()) return;
  throw ConfigError(fmt::format(
      "{} has teams ({}), and a stream's stages are whole: expected a plan without tensor", path,
      plan.config()));
}

std::string plan_size_warning(const plan::Plan& plan, const model::Model& model,
                              const frames::FrameSize& size, const std::string& path) {
  // Not where a stage hands over what another one than its last layer made.
  if (plan.links.size() + 1 != plan.stages.size()) return {};
  std::map<std::string, LayerId> layers;
  for (int l = 0; l < model.graph().num_layers(); ++l)
    layers[model.graph().layer(LayerId{l}).name] = LayerId{l};
  for (const plan::Link& link : plan.links) {
    const size_t from = link.from.index();
    if (from >= plan.stages.size() || plan.stages[from].layers.empty()) return {};
    const auto last = layers.find(plan.stages[from].layers.back());
    if (last == layers.end() || model.graph().layer(last->second).num_outputs != 1) return {};
    const int64_t here = plan.micro_batch_size * output_bytes(model, last->second);
    if (link.bytes == here) continue;
    return fmt::format(
        "warning: the plan {} was made for frames of another size: stage {} hands over {} there, "
        "{} of a frame of {}; its predicted rate is not that of this stream\n",
        path, from, format_bytes(link.bytes), format_bytes(here), to_string(size));
  }
  return {};
}

}  // namespace penstock::job
