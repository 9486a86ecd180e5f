// A model's state dict as PyTorch has it, and weights.pt: a zip archive with a pickled dict, as
// torch.save writes it.
#pragma once

#include <ATen/core/Dict.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "penstock/model/model.h"
#include "penstock/train/checkpoint/layer_state.h"
#include "penstock/train/checkpoint/manifest.h"

namespace penstock::train {

/// In the order of insertion.
using StateDict = c10::Dict<std::string, at::Tensor>;

/// Whether a state dict has the model's frozen parameters.
enum class FrozenWeights : uint8_t { With, Without };

/// {"<layer>.<parameter>": tensor, ...}, with buffers and the model's extra state: in the host's
/// memory and contiguous, of the types that the user's module has (a weight of 16 bits is rounded
/// from the float32 that is trained). The tensors are those of `layers` where they can be; a tied
/// weight is one tensor under two names.
StateDict state_dict(const model::Model& model, const std::vector<LayerState>& layers,
                     FrozenWeights frozen);

/// Writes folder / name, which torch.load reads, and flushes it. Throws RuntimeError when writing
/// fails.
FileRecord write_state_dict(const std::filesystem::path& folder, const std::string& name,
                            const StateDict& dict);

}  // namespace penstock::train
