// manifest.json of a checkpoint. Its last member is the CRC-32 of all bytes before it, so that
// damage to the manifest itself is noticed. Torch-free: the parser is fuzzed without libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/runtime/loss_scale.h"
#include "penstock/train/plateau.h"
#include "penstock/train/weight_mean.h"

namespace penstock::train {

/// What the learning rates of later steps depend on beside the options.
struct SavedRate {
  int64_t schedule_steps = 0;  ///< length of a schedule that has an end; 0: not known
  double scale = 1;            ///< the rates of the schedule are multiplied by this
  std::optional<double> base = std::nullopt;  ///< set by the program, instead of the options'
  std::optional<PlateauState> plateau = std::nullopt;  ///< of a schedule that follows evaluations
  /// The step of the last evaluation that rates, or a mean of the weights, followed.
  std::optional<int64_t> evaluated_at = std::nullopt;

  bool operator==(const SavedRate&) const = default;
};

/// The point of the training at which a checkpoint was saved.
struct CheckpointPosition {
  std::string model;            ///< Model::name()
  int64_t epoch = 0;            ///< epochs completed
  int64_t next_mini_batch = 0;  ///< within the epoch that comes next
  int64_t step = 0;             ///< optimiser steps so far
  uint64_t seed = 0;
  int64_t mini_batch_size = 0;
  /// Size of the training set; the position is valid only for this size.
  int64_t train_samples = 0;
  /// Whether epochs visit the samples in a random order; unknown: of a manifest without it.
  std::optional<bool> shuffle = std::nullopt;
  /// What sequences are padded to, by name, which decides their order, too; kStreams: windows of a
  /// text, which carry states.
  std::string lengths = "whole";
  std::string optimizer;  ///< its name
  /// What the training's plan was made for (TrainOptions::plan_request); empty: not known.
  std::string plan_request = {};
  /// The options that change what is learned, by name (TrainOptions::settings); empty: not known.
  std::map<std::string, std::string> settings = {};
  /// The names of the classes 0, 1, ... that the weights have learned; empty: not known.
  std::vector<std::string> classes = {};
  /// Where the program's loader of batches is (Place::loader); empty: not known.
  std::string loader = {};
  SavedRate rate = {};
  /// Of a training in float16.
  std::optional<runtime::LossScaleState> loss_scale = std::nullopt;
  /// Of a training whose mean of the weights waits for evaluations.
  std::optional<WeightMeanState> mean = std::nullopt;

  bool operator==(const CheckpointPosition&) const = default;
};

/// CheckpointPosition::lengths where states are carried.
inline constexpr std::string_view kStreams = "streams";

/// A manifest's entry for a file. An empty name: there is no file.
struct FileRecord {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32 = 0;

  bool operator==(const FileRecord&) const = default;
};

struct ManifestLayer {
  std::string name;
  std::string kind;
  FileRecord file;  ///< layers without state have none
  std::vector<std::string> optimizer_states;

  bool operator==(const ManifestLayer&) const = default;
};

/// Frozen parameters, which are in the model's own file and in no checkpoint.
struct FrozenRecord {
  int64_t tensors = 0;  ///< 0: there are none, or an older manifest does not say
  std::string digest;   ///< of their names, types, sizes and values

  bool operator==(const FrozenRecord&) const = default;
};

struct Manifest {
  CheckpointPosition position;
  std::string graph;  ///< graph_hash() of the model
  std::vector<ManifestLayer> layers;
  FileRecord state_dict;
  FileRecord plan;  ///< plan.json; older manifests have none
  FileRecord mean;  ///< average.pt, the state dict of the weights' mean; empty: there is none
  FrozenRecord frozen = {};
  std::string adapters = {};        ///< adapter_text() of the model's; empty: it has none
  FileRecord adapter_weights = {};  ///< adapter_model.safetensors

  bool operator==(const Manifest&) const = default;
};

/// The name of a layer's file: "layer-00003-conv2.safetensors".
std::string layer_file_name(int64_t index, const std::string& layer);

/// Throws ConfigError when a name is not valid UTF-8.
std::string manifest_text(const Manifest& manifest);

/// Throws ParseError for a damaged or malformed manifest, a newer version, file names other than
/// layer_file_name's or with a '/', and a position that no training of such samples has.
Manifest parse_manifest(std::string_view text, std::string_view place);

}  // namespace penstock::train
