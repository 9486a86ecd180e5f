// NumPy's files: one array (.npy), or several by name (.npz).
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace penstock::train {

/// An array of numbers or truth values, row-major; uint16 becomes int32, uint32 and uint64 int64.
/// Throws ConfigError (it cannot be read), ParseError naming the file: no .npy, another type,
/// sizes that do not fit its length.
at::Tensor read_npy(const std::filesystem::path& path);
/// All arrays of an .npz file, by name without ".npy". Throws as read_npy().
std::map<std::string, at::Tensor> read_npz(const std::filesystem::path& path);
/// The same for the content of an .npy file; `place` names it in errors. Keeps the content as the
/// array's memory.
at::Tensor parse_npy(std::string content, const std::string& place);

}  // namespace penstock::train
