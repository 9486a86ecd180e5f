#include "penstock/train/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <system_error>

#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/train/checkpoint/layer_file.h"
#include "penstock/train/checkpoint/manifest.h"
#include "penstock/train/checkpoint/model_match.h"
#include "penstock/train/checkpoint/state_dict.h"
#include "penstock/train/checkpoint/tied_state.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/files.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

void write_contents(const fs::path& folder, const model::Model& model,
                    const Checkpoint& checkpoint) {
  Manifest manifest;
  manifest.position = checkpoint;
  manifest.graph = graph_hash(model);
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const graph::LayerNode& node = model.graph().layer(LayerId{i});
    const LayerState state =
        own_state(model, LayerId{i}, checkpoint.layers[static_cast<size_t>(i)]);
    ManifestLayer layer{.name = node.name, .kind = node.kind, .file = {}, .optimizer_states = {}};
    for (const auto& [name, tensors] : state.optimizer) layer.optimizer_states.push_back(name);
    if (!state.weights.empty() || !state.buffers.empty()) {
      layer.file = write_layer_file(folder, layer_file_name(i, node.name),
                                    own_specs(model, LayerId{i}), state);
    }
    manifest.layers.push_back(std::move(layer));
  }
  manifest.state_dict = write_state_dict(folder, "weights.pt", model, checkpoint.layers);
  const std::string text = manifest_text(manifest);
  FileWriter file(folder / "manifest.json");
  file.write(text.data(), text.size());
  file.finish();
}

Manifest read_manifest(const fs::path& folder, const model::Model& model) {
  const fs::path path = folder / "manifest.json";
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  FileReader file(path);
  if (file.size() > kMaxBytes)
    throw CheckpointError(fmt::format("{}: expected at most {} bytes, found {}", path.string(),
                                      kMaxBytes, file.size()));
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(text.data(), file.size());
  Manifest manifest = parse_manifest(text, path.string());
  check_same_model(manifest, model, path.string());
  return manifest;
}

/// One optimiser steps all weights, so every layer with weights of its own has the same states.
void check_optimizer_states(const fs::path& folder, const model::Model& model,
                            const Manifest& manifest) {
  const ManifestLayer* first = nullptr;
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const ManifestLayer& layer = manifest.layers[i];
    if (own_specs(model, LayerId{static_cast<int32_t>(i)}).weights.empty()) continue;
    if (first == nullptr) first = &layer;
    if (layer.optimizer_states == first->optimizer_states) continue;
    throw CheckpointError(fmt::format(
        "{}: layer '{}': expected the optimiser states [{}] of layer '{}', found [{}]",
        (folder / "manifest.json").string(), layer.name, fmt::join(first->optimizer_states, ", "),
        first->name, fmt::join(layer.optimizer_states, ", ")));
  }
}

Checkpoint load_folder(const fs::path& folder, const model::Model& model) {
  try {
    Manifest manifest = read_manifest(folder, model);
    check_optimizer_states(folder, model, manifest);
    Checkpoint checkpoint{std::move(manifest.position), {}};
    for (size_t i = 0; i < manifest.layers.size(); ++i) {
      const ManifestLayer& layer = manifest.layers[i];
      const bool has_state = !layer.file.name.empty();
      checkpoint.layers.push_back(
          has_state ? read_layer_file(folder, layer.file,
                                      own_specs(model, LayerId{static_cast<int32_t>(i)}),
                                      layer.optimizer_states)
                    : LayerState{});
    }
    if (manifest.graph != graph_hash(model)) {
      throw CheckpointError(
          fmt::format("{}: the checkpoint belongs to another model: the layers have the same names "
                      "but other connections or shapes",
                      folder.string()));
    }
    verify_file(folder, manifest.state_dict);
    restore_ties(model, checkpoint.layers);
    return checkpoint;
  } catch (const ParseError& error) {
    throw CheckpointError(error.what());
  }
}

bool is_intact(const fs::path& folder, const model::Model& model) {
  try {
    load_folder(folder, model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Says which checkpoint can be used in place of the `broken` one.
std::string advice(const fs::path& directory, const fs::path& broken, const model::Model& model) {
  std::string text;
  for (const fs::path& folder : list_checkpoints(directory)) {
    if (folder == broken) continue;
    if (is_intact(folder, model))
      return fmt::format("; an intact checkpoint is '{}', it can be loaded by that name",
                         folder.string());
    text = "; no other checkpoint there can be used";
  }
  return text;
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, const model::Model& model,
                         const Checkpoint& checkpoint, int keep) {
  if (keep < 1)
    throw ConfigError(fmt::format("expected at least 1 checkpoint to keep, found {}", keep));
  PENSTOCK_CHECK(static_cast<int>(checkpoint.layers.size()) == model.graph().num_layers(),
                 checkpoint.layers.size());
  PENSTOCK_CHECK(checkpoint.model == model.name() && checkpoint.step >= 0, checkpoint.model,
                 checkpoint.step);
  make_checkpoint_directory(directory);
  const SaveLock lock(directory);
  remove_leftovers(directory);
  const fs::path final_path = directory / checkpoint_folder_name(checkpoint.step);
  const fs::path temporary =
      make_temporary_folder(directory, checkpoint_folder_name(checkpoint.step));
  try {
    write_contents(temporary, model, checkpoint);
    publish(temporary, final_path);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  remove_old_checkpoints(directory, final_path, keep);
  return final_path;
}

Checkpoint load_checkpoint(const fs::path& directory, const model::Model& model) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw CheckpointError(fmt::format("there is no checkpoint folder '{}'", directory.string()));
  if (fs::exists(directory / "manifest.json", error)) return load_folder(directory, model);
  fs::path folder;
  try {
    folder = latest_checkpoint(directory);
    return load_folder(folder, model);
  } catch (const CheckpointError& failure) {
    throw CheckpointError(failure.what() + advice(directory, folder, model));
  }
}

bool has_checkpoint(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / "manifest.json", error) || fs::exists(directory / "latest", error))
    return true;
  return !list_checkpoints(directory).empty();
}

}  // namespace penstock::train
