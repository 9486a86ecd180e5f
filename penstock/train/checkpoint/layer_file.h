// The state of one layer in one safetensors file: "weights.<name>", "buffers.<name>",
// "carried.<name>" (Layer::carried()), "optimizer.<state>.<weight name>".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/train/checkpoint/layer_state.h"
#include "penstock/train/checkpoint/manifest.h"
#include "penstock/train/checkpoint/tied_state.h"

namespace penstock::train {

/// Writes folder / name and flushes it. Tensors must have the shapes of `specs`, states
/// those that an optimiser can give them. Throws
/// RuntimeError when writing fails.
FileRecord write_layer_file(const std::filesystem::path& folder, const std::string& name,
                            const OwnSpecs& specs, const LayerState& state);

/// Reads it back; `optimizer_states` names the states that each weight has. Throws CheckpointError
/// unless size, checksum, names, types and shapes are right.
LayerState read_layer_file(const std::filesystem::path& folder, const FileRecord& record,
                           const OwnSpecs& specs, const std::vector<std::string>& optimizer_states);

/// Reads a file only to check its size and checksum. Throws CheckpointError when they differ from
/// the record.
void verify_file(const std::filesystem::path& folder, const FileRecord& record);

}  // namespace penstock::train
