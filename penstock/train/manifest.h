// manifest.json of a checkpoint. Its last member is the CRC-32 of all bytes before it, so that damage to the manifest itself is noticed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/train/checkpoint.h"
#include "penstock/train/layer_file.h"

namespace penstock::train {

struct ManifestLayer {
  std::string name;
  std::string kind;
  FileRecord file;  ///< layers without state have none
  std::vector<std::string> optimizer_states;
};

struct Manifest {
  Checkpoint position;  ///< everything but the layers
  std::string graph;    ///< graph_hash() of the model
  std::vector<ManifestLayer> layers;
  FileRecord state_dict;
};

/// A hash of the layers, their connections and shapes.
std::string graph_hash(const model::Model& model);

/// The name of a layer's file: "layer-00003-conv2.safetensors".
std::string layer_file_name(int64_t index, const std::string& layer);

std::string manifest_text(const Manifest& manifest);

/// Throws ParseError for a damaged or malformed manifest, a newer version, file names other than layer_file_name's.
Manifest parse_manifest(std::string_view text, std::string_view place);

/// Throws CheckpointError saying which layer differs first when the checkpoint was written for another model.
void check_same_model(const Manifest& manifest, const model::Model& model, std::string_view place);

}  // namespace penstock::train
