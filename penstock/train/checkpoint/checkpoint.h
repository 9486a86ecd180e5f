// Checkpoints that do not depend on how the model is split: one file per layer (weights, buffers,
// optimiser state) in the safetensors format, a manifest with checksums, and weights.pt, a state
// dict that torch.load reads.
//
//   DIR/
//     step-000000938/
//       manifest.json                   below
//       layer-00000-conv1.safetensors   layers without state have no file
//       weights.pt
//       average.pt                        of a mean of the weights (weight_mean.h)
//       plan.json                         that the training ran with
//       adapter_model.safetensors         of adapters (adapter_files.h), with adapter_config.json
//     best                              a link to the folder with the best evaluation
//     latest                            the name of the newest complete folder; on a second line
//                                       the name's checksum
//
//   manifest.json
//     {"format": "penstock-checkpoint", "version": 1, "model": ..., "graph": hash,
//      "epoch": ..., "step": ..., "shuffle": ...,
//      "layers": [{"name", "kind", "optimizer_states", "file": {"name", "bytes", "crc32"}}, ...],
//      "state_dict": {"name", "bytes", "crc32"}, "plan": {the same}, "plan_request": ...,
//      "settings": {"--lr": "0.05", ...}, "classes": ["cat", "dog"],
//      "learning_rate": {"schedule_steps": 9380, "scale": 0.1},
//      "crc32": of all that comes before it}
//
// Writing: everything goes to DIR/.tmp-..., is flushed to disk and renamed; then `latest` is
// replaced atomically; then all checkpoints but those that are to be kept are removed. A crash at
// any moment leaves the previous checkpoint usable. With several ranks, which need one shared
// folder, each writes the files of its own layers; rank 0 makes the folder, writes manifest and
// weights.pt and renames.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/runtime/ranks.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/train/checkpoint/layer_state.h"
#include "penstock/train/checkpoint/manifest.h"

namespace penstock::train {

struct Checkpoint : CheckpointPosition {
  std::vector<LayerState> layers;  ///< one per layer of the model, in graph order
  std::string plan = {};  ///< plan::to_json(); empty: none. load_checkpoint() leaves it out
};

/// `directory` holds the run's checkpoints and must not be one itself. Returns the folder written.
/// With several ranks it is collective, exactly one rank has the state of each layer, and when one
/// rank fails all throw. Throws ConfigError when `directory` cannot be made, RuntimeError when
/// writing fails (nothing is lost then), TimeoutError.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory,
                                      const model::Model& model, const Checkpoint& checkpoint,
                                      const KeptCheckpoints& kept = {},
                                      const runtime::Ranks& ranks = {});

/// The newest checkpoint in `directory` (or the checkpoint folder itself); with `wanted`, only the
/// state of these layers (and of those whose weights they share); the other entries are empty.
/// Sizes, shapes, names, types and checksums of all data read are verified before use. Throws
/// CheckpointError naming the file, what was found and what was expected; when the newest is
/// damaged, the message names an intact older one.
Checkpoint load_checkpoint(const std::filesystem::path& directory, const model::Model& model,
                           const std::function<bool(LayerId)>& wanted = {});

/// Whether `directory` holds any checkpoint.
bool has_checkpoint(const std::filesystem::path& directory);

/// Where the newest checkpoint in `directory` (or the checkpoint folder itself) was saved: reads
/// its manifest alone. Throws CheckpointError as load_checkpoint().
CheckpointPosition newest_position(const std::filesystem::path& directory,
                                   const model::Model& model);

/// The plan (plan::to_json()) of the newest checkpoint in `directory` (or of the checkpoint folder
/// itself), and what it was made for.
struct SavedPlan {
  std::filesystem::path file;  ///< empty: that checkpoint has none
  std::string text;
  std::string request;  ///< CheckpointPosition::plan_request
};
/// Throws CheckpointError as load_checkpoint().
SavedPlan newest_plan(const std::filesystem::path& directory, const model::Model& model);

}  // namespace penstock::train
