#include "penstock/job/stream/stream_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/layer_states.h"
#include "penstock/util/error.h"

namespace penstock::job {

namespace {
constexpr int kKeptCheckpoints = 2;
/// Among a checkpoint's settings: the number of the source's frame that came next.
constexpr const char* kNextFrame = "next frame";

int64_t next_frame_of(const train::Checkpoint& checkpoint) {
  const auto found = checkpoint.settings.find(kNextFrame);
  // Older ones do not say; without drops it is the number of frames learned from.
  if (found == checkpoint.settings.end()) return checkpoint.step;
  int64_t number = -1;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
  return number;
}

}  // namespace

StreamWeights::StreamWeights(const options::StreamRequest& request, const model::Model& model,
                             std::vector<std::string> classes)
    : request_(request),
      model_(model),
      optimizer_(model::make_optimizer(request.optimizer)),
      folder_(request.run.checkpoint),
      classes_(std::move(classes)) {
  if (folder_.empty()) return;
  // One that is a checkpoint itself is resumed from; what follows is saved beside it.
  if (request.run.resume) folder_ = train::folder_of_checkpoints(folder_).string();
  if (!request.run.resume && train::has_checkpoint(folder_)) {
    throw ConfigError(fmt::format(
        "'{}' holds weights already: add --resume to continue from them, or choose another folder",
        folder_));
  }
  lock_.emplace(folder_);
}

std::optional<stream::StreamState> StreamWeights::load(const Listener& listener) {
  if (!request_.run.resume) return std::nullopt;
  if (!train::has_checkpoint(request_.run.checkpoint)) {
    listener.tell(
        fmt::format("warning: no weights in '{}' yet: beginning anew\n", request_.run.checkpoint));
    return std::nullopt;
  }
  const train::Checkpoint checkpoint = train::load_checkpoint(request_.run.checkpoint, model_);
  if (!classes_.empty() && !checkpoint.classes.empty() && checkpoint.classes != classes_) {
    throw ConfigError(fmt::format(
        "the weights in '{}' have learned the classes {}, and the source has {}: expected the same",
        request_.run.checkpoint, fmt::join(checkpoint.classes, ", "), fmt::join(classes_, ", ")));
  }
  if (classes_.empty()) classes_ = checkpoint.classes;
  stream::StreamState state{.steps = checkpoint.step, .next_frame = next_frame_of(checkpoint)};
  for (const train::LayerState& layer : checkpoint.layers)
    state.layers.push_back(
        train::to_snapshot(layer, optimizer_->state_names(), to_string(request_.optimizer.kind)));
  listener.tell(fmt::format("resumed after {} frames\n", checkpoint.step));
  return state;
}

std::string StreamWeights::save(const stream::StreamState& state) {
  if (folder_.empty()) return {};
  std::string plan = plan::to_json(state.plan);
  train::Checkpoint checkpoint{{.model = model_.name(),
                                .step = state.steps,
                                .seed = request_.run.seed,
                                .mini_batch_size = 1,
                                .optimizer = std::string(to_string(request_.optimizer.kind)),
                                .settings = {{kNextFrame, fmt::to_string(state.next_frame)}},
                                .classes = classes_},
                               {},
                               std::move(plan)};
  for (const runtime::LayerSnapshot& layer : state.layers)
    checkpoint.layers.push_back(train::to_state(layer, optimizer_->state_names()));
  try {
    failure_.clear();
    const auto saved = train::save_checkpoint(folder_, model_, checkpoint, kKeptCheckpoints);
    return "weights: " + saved.string();
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    failure_ = fmt::format("the weights are not saved: {}", error.what());
    return "warning: " + failure_;
  }
}

}  // namespace penstock::job
