// weights.pt: a zip archive with a pickled dict, as torch.save writes it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/manifest.h"

namespace penstock::train {

/// Writes folder / name and flushes it. Throws RuntimeError when writing fails.
FileRecord write_state_dict(const std::filesystem::path& folder, const std::string& name,
                            const model::Model& model, const std::vector<LayerState>& layers);

}  // namespace penstock::train
