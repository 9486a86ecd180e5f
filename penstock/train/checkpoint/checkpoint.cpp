#include "penstock/train/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <system_error>

#include "penstock/train/checkpoint/adapter_files.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/train/checkpoint/folder_lock.h"
#include "penstock/train/checkpoint/layer_file.h"
#include "penstock/train/checkpoint/manifest.h"
#include "penstock/train/checkpoint/model_match.h"
#include "penstock/train/checkpoint/state_dict.h"
#include "penstock/train/checkpoint/tied_state.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/files/json.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

/// Samples whose states a checkpoint at this position has, because it lies inside a text.
int64_t carried_samples(const CheckpointPosition& position) {
  return position.lengths == kStreams && position.next_mini_batch > 0 ? position.mini_batch_size
                                                                      : 0;
}

/// Writes the files of the layers on this rank; returns their entries for the manifest, by layer.
std::map<int, ManifestLayer> write_layers(const fs::path& folder, const model::Model& model,
                                          const Checkpoint& checkpoint) {
  std::map<int, ManifestLayer> written;
  for (int i = 0; i < model.graph().num_layers(); ++i) {
    const LayerState& whole = checkpoint.layers[static_cast<size_t>(i)];
    if (!whole.here) continue;
    const graph::LayerNode& node = model.graph().layer(LayerId{i});
    const LayerState state = own_state(model, LayerId{i}, whole);
    ManifestLayer layer{.name = node.name, .kind = node.kind, .file = {}, .optimizer_states = {}};
    for (const auto& [name, tensors] : state.optimizer) layer.optimizer_states.push_back(name);
    if (!state.weights.empty() || !state.buffers.empty()) {
      layer.file =
          write_layer_file(folder, layer_file_name(i, node.name),
                           own_specs(model, LayerId{i}, carried_samples(checkpoint)), state);
    }
    written.emplace(i, std::move(layer));
  }
  return written;
}

// The text with which a rank tells rank 0 what it has written.

std::string records_text(const std::map<int, ManifestLayer>& written) {
  Json records = Json::array();
  for (const auto& [index, layer] : written) {
    records.push_back({{"layer", index},
                       {"file", layer.file.name},
                       {"bytes", layer.file.bytes},
                       {"crc32", layer.file.crc32},
                       {"optimizer_states", layer.optimizer_states}});
  }
  return records.dump();
}

void add_records(const std::string& text, const model::Model& model,
                 std::map<int, ManifestLayer>& written) {
  for (const Json& record : parse_json(text, "the record of another rank")) {
    const int index = record.at("layer").get<int>();
    const graph::LayerNode& node = model.graph().layer(LayerId{index});
    written[index] = {
        .name = node.name,
        .kind = node.kind,
        .file = {.name = record.at("file").get<std::string>(),
                 .bytes = record.at("bytes").get<int64_t>(),
                 .crc32 = record.at("crc32").get<uint32_t>()},
        .optimizer_states = record.at("optimizer_states").get<std::vector<std::string>>()};
  }
}

LayerState read_layer(const fs::path& folder, const model::Model& model, int index,
                      const ManifestLayer& layer, const CheckpointPosition& position) {
  if (layer.file.name.empty()) return {};
  return read_layer_file(folder, layer.file,
                         own_specs(model, LayerId{index}, carried_samples(position)),
                         layer.optimizer_states);
}

bool all_here(const std::vector<LayerState>& layers) {
  return std::all_of(layers.begin(), layers.end(), [](const LayerState& l) { return l.here; });
}

/// Every layer's state: that of other ranks is read from the files that they have just written.
std::vector<LayerState> gathered(const fs::path& folder, const model::Model& model,
                                 const Checkpoint& checkpoint,
                                 const std::map<int, ManifestLayer>& written) {
  std::vector<LayerState> layers = checkpoint.layers;
  if (all_here(layers)) return layers;
  for (const auto& [index, layer] : written) {
    LayerState& state = layers[static_cast<size_t>(index)];
    state = state.here ? own_state(model, LayerId{index}, state)
                       : read_layer(folder, model, index, layer, checkpoint);
    // weights.pt holds none of it, average.pt the mean of the weights.
    std::erase_if(state.optimizer, [](const auto& one) { return one.first != model::kAverage; });
  }
  restore_ties(model, layers);
  return layers;
}

/// The layers with the means of their weights instead; nothing: none are kept.
std::optional<std::vector<LayerState>> with_means(std::vector<LayerState> layers) {
  bool are_kept = false;
  for (LayerState& layer : layers) {
    const auto mean = layer.optimizer.find(std::string(model::kAverage));
    if (mean == layer.optimizer.end()) continue;
    are_kept = true;
    layer.weights = std::move(mean->second);
  }
  return are_kept ? std::optional(std::move(layers)) : std::nullopt;
}

FileRecord write_text(const fs::path& folder, const std::string& name, const std::string& text) {
  FileWriter file(folder / name);
  file.write(text.data(), text.size());
  file.finish();
  return {name, file.bytes(), file.crc32()};
}

/// Rank 0's part, after all layers' files are written.
void write_manifest(const fs::path& folder, const model::Model& model, const Checkpoint& checkpoint,
                    const std::map<int, ManifestLayer>& written) {
  Manifest manifest;
  manifest.position = checkpoint;
  manifest.graph = graph_hash(model);
  for (const auto& [index, layer] : written) manifest.layers.push_back(layer);
  PENSTOCK_CHECK(static_cast<int>(manifest.layers.size()) == model.graph().num_layers(),
                 manifest.layers.size());
  manifest.frozen = frozen_record(model);
  std::vector<LayerState> layers = gathered(folder, model, checkpoint, written);
  const StateDict dict = state_dict(model, layers, FrozenWeights::Without);
  manifest.state_dict = write_state_dict(folder, "weights.pt", dict);
  if (model.adapters()) {
    manifest.adapters = adapter_text(*model.adapters());
    manifest.adapter_weights = write_adapters(folder, *model.adapters(), dict);
  }
  if (const auto means = with_means(std::move(layers))) {
    manifest.mean =
        write_state_dict(folder, "average.pt", state_dict(model, *means, FrozenWeights::Without));
  }
  if (!checkpoint.plan.empty()) manifest.plan = write_text(folder, "plan.json", checkpoint.plan);
  write_text(folder, "manifest.json", manifest_text(manifest));
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
  check_folder_name(folder, manifest.position.step);
  check_same_model(manifest, model, path.string());
  return manifest;
}

/// One optimiser steps all weights, so every layer with its own weights has the same states.
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

/// The layers to read: those in `wanted` and the owners of the weights that they share.
std::vector<bool> layers_to_read(const model::Model& model,
                                 const std::function<bool(LayerId)>& wanted) {
  std::vector<bool> read(static_cast<size_t>(model.graph().num_layers()), true);
  if (!wanted) return read;
  for (size_t i = 0; i < read.size(); ++i) read[i] = wanted(LayerId{static_cast<int32_t>(i)});
  for (size_t i = 0; i < read.size(); ++i) {
    if (!wanted(LayerId{static_cast<int32_t>(i)})) continue;
    for (const graph::WeightTie& tie : model.graph().layers()[i].ties)
      read[tie.owner.layer.index()] = true;
  }
  return read;
}

Checkpoint load_folder(const fs::path& folder, const model::Model& model,
                       const std::function<bool(LayerId)>& wanted = {}) {
  try {
    Manifest manifest = read_manifest(folder, model);
    check_optimizer_states(folder, model, manifest);
    Checkpoint checkpoint{std::move(manifest.position), {}, {}};
    const std::vector<bool> read = layers_to_read(model, wanted);
    for (size_t i = 0; i < manifest.layers.size(); ++i) {
      checkpoint.layers.push_back(
          read[i] ? read_layer(folder, model, static_cast<int>(i), manifest.layers[i], checkpoint)
                  : LayerState{.here = false});
    }
    if (manifest.graph != graph_hash(model)) {
      throw CheckpointError(
          fmt::format("{}: the checkpoint belongs to another model: the layers have the same names "
                      "but other connections or shapes, as for inputs of another size",
                      folder.string()));
    }
    verify_file(folder, manifest.state_dict);
    if (!manifest.plan.name.empty()) verify_file(folder, manifest.plan);
    if (!manifest.mean.name.empty()) verify_file(folder, manifest.mean);
    if (!manifest.adapters.empty()) verify_file(folder, manifest.adapter_weights);
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
      return fmt::format("; an intact checkpoint is '{}': resume from that folder",
                         folder.string());
    text = "; no other checkpoint there can be used";
  }
  return text;
}

/// What `read` makes of the newest checkpoint's folder; its errors name one that can be used.
template <class Read>
auto of_newest(const fs::path& directory, const model::Model& model, const Read& read) {
  std::error_code error;
  fs::path folder = directory;
  try {
    if (!fs::exists(directory / "manifest.json", error)) folder = latest_checkpoint(directory);
    return read(folder);
  } catch (const ParseError& failure) {
    throw CheckpointError(failure.what() + advice(directory, folder, model));
  } catch (const CheckpointError& failure) {
    throw CheckpointError(failure.what() + advice(directory, folder, model));
  }
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, const model::Model& model,
                         const Checkpoint& checkpoint, const KeptCheckpoints& kept,
                         const runtime::Ranks& ranks) {
  if (kept.newest < 1)
    throw ConfigError(fmt::format("expected at least 1 checkpoint to keep, found {}", kept.newest));
  PENSTOCK_CHECK(static_cast<int>(checkpoint.layers.size()) == model.graph().num_layers(),
                 checkpoint.layers.size());
  PENSTOCK_CHECK(checkpoint.model == model.name() && checkpoint.step >= 0, checkpoint.model,
                 checkpoint.step);
  const std::string name = checkpoint_folder_name(checkpoint.step);
  std::optional<SaveLock> lock;
  const std::string temporary = runtime::together(ranks, [&]() -> std::string {
                                  if (!ranks.is_first()) return "";
                                  make_checkpoint_directory(directory);
                                  lock.emplace(directory);
                                  remove_leftovers(directory);
                                  return make_temporary_folder(directory, name).string();
                                }).front();
  try {
    std::map<int, ManifestLayer> written;
    const std::vector<std::string> records = runtime::together(ranks, [&]() -> std::string {
      written = write_layers(temporary, model, checkpoint);
      return ranks.world == nullptr ? "" : records_text(written);
    });
    runtime::together(ranks, [&]() -> std::string {
      if (!ranks.is_first()) return "";
      for (size_t r = 1; r < records.size(); ++r) add_records(records[r], model, written);
      write_manifest(temporary, model, checkpoint, written);
      publish(temporary, directory / name);
      return "";
    });
  } catch (...) {
    std::error_code ignored;
    if (ranks.is_first()) fs::remove_all(temporary, ignored);
    throw;
  }
  if (ranks.is_first()) remove_old_checkpoints(directory, directory / name, kept);
  return directory / name;
}

Checkpoint load_checkpoint(const fs::path& directory, const model::Model& model,
                           const std::function<bool(LayerId)>& wanted) {
  std::error_code error;
  if (!fs::is_directory(directory, error))
    throw CheckpointError(fmt::format("there is no checkpoint folder '{}'", directory.string()));
  if (fs::exists(directory / "manifest.json", error)) return load_folder(directory, model, wanted);
  fs::path folder;
  try {
    folder = latest_checkpoint(directory);
    return load_folder(folder, model, wanted);
  } catch (const CheckpointError& failure) {
    throw CheckpointError(failure.what() + advice(directory, folder, model));
  }
}

CheckpointPosition newest_position(const fs::path& directory, const model::Model& model) {
  return of_newest(directory, model,
                   [&](const fs::path& folder) { return read_manifest(folder, model).position; });
}

SavedPlan newest_plan(const fs::path& directory, const model::Model& model) {
  return of_newest(directory, model, [&](const fs::path& folder) -> SavedPlan {
    const Manifest manifest = read_manifest(folder, model);
    if (manifest.plan.name.empty()) return {};
    verify_file(folder, manifest.plan);
    const fs::path file = folder / manifest.plan.name;
    return {file, read_file(file), manifest.position.plan_request};
  });
}

bool has_checkpoint(const fs::path& directory) {
  std::error_code error;
  if (fs::exists(directory / "manifest.json", error) || fs::exists(directory / "latest", error))
    return true;
  return !list_checkpoints(directory).empty();
}

}  // namespace penstock::train
