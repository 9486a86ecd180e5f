// Trained adapters in a checkpoint's folder, as PEFT keeps them: adapter_config.json and
// adapter_model.safetensors.
//
//   model = peft.PeftModel.from_pretrained(base, "saved/step-000000938")   # in Python
#pragma once

#include <filesystem>
#include <string>

#include "penstock/model/adapters.h"
#include "penstock/train/checkpoint/manifest.h"
#include "penstock/train/checkpoint/state_dict.h"

namespace penstock::train {

inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfig = "adapter_config.json";

/// What tells these adapters from others, for people and to compare.
std::string adapter_text(const model::Adapters& adapters);

/// Writes both files and flushes them. Returns the record of the weights, which are those of the
/// state dict that belong to the adapters. Throws RuntimeError when writing fails.
FileRecord write_adapters(const std::filesystem::path& folder, const model::Adapters& adapters,
                          const StateDict& dict);

}  // namespace penstock::train
