#include "penstock/train/checkpoint/layer_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <bit>
#include <map>
#include <string_view>

#include "penstock/plan/low_rank.h"
#include "penstock/train/checkpoint/file_stream.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/files/safetensors.h"

namespace penstock::train {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using Specs = std::vector<model::ParameterSpec>;

constexpr std::string_view kOptimizer = "optimizer.";
constexpr std::string_view kFactor = "optimizer.powersgd.factor.";

/// A state has the shape of its weight, no numbers, or one number per row or column, or per pair of
/// them: the optimiser says which (model::StateShape), and finds others when it takes them.
bool is_state_shape(const std::vector<int64_t>& found, const std::vector<int64_t>& weight) {
  if (found == weight || found == std::vector<int64_t>{0}) return true;
  const size_t dims = weight.size();
  for (size_t reduced = dims < 2 ? dims : dims - 2; reduced < dims; ++reduced) {
    std::vector<int64_t> lines = weight;
    lines[reduced] = 1;
    if (found == lines) return true;
    if (dims == 2 && found == std::vector<int64_t>{weight[reduced], weight[reduced]}) return true;
  }
  return false;
}

/// One column of PowerSGD's factor has a number for each one of the weight's columns.
bool is_factor_shape(const std::vector<int64_t>& found, const std::vector<int64_t>& weight) {
  return found.size() == 2 && found.front() == plan::matrix_sizes(weight).columns &&
         found.back() <= plan::kMostSyncRank;
}

/// The file's tensors of a layer in the order in which they are written; offsets not yet set, and
/// states with the shapes of their weights.
std::vector<TensorInfo> expected_tensors(const OwnSpecs& specs,
                                         const std::vector<std::string>& optimizer_states) {
  std::vector<TensorInfo> tensors;
  const auto add = [&](const std::string& prefix, const Specs& all) {
    for (const model::ParameterSpec& spec : all)
      tensors.push_back({.name = prefix + spec.name, .dtype = "F32", .shape = spec.shape});
  };
  add("weights.", specs.weights);
  add("buffers.", specs.buffers);
  add("carried.", specs.carried);
  for (const std::string& state : optimizer_states)
    add(fmt::format("{}{}.", kOptimizer, state), specs.weights);
  return tensors;
}

std::vector<at::Tensor> all_tensors(const LayerState& state) {
  std::vector<at::Tensor> tensors = state.weights;
  tensors.insert(tensors.end(), state.buffers.begin(), state.buffers.end());
  tensors.insert(tensors.end(), state.carried.begin(), state.carried.end());
  for (const auto& [name, values] : state.optimizer)
    tensors.insert(tensors.end(), values.begin(), values.end());
  return tensors;
}

/// The expected tensors with their offsets in the file.
std::vector<TensorInfo> check_header(FileReader& file, const std::vector<TensorInfo>& expected) {
  std::string first(static_cast<size_t>(std::min(file.size(), kSafetensorsLengthBytes)), '\0');
  file.read(first.data(), static_cast<int64_t>(first.size()));
  std::string header(
      static_cast<size_t>(safetensors_header_bytes(first, file.size(), file.place())), '\0');
  file.read(header.data(), static_cast<int64_t>(header.size()));
  std::vector<TensorInfo> found = parse_safetensors_header(header, file.remaining(), file.place());
  std::map<std::string, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : expected) by_name[tensor.name] = &tensor;
  for (const TensorInfo& tensor : found) {
    const auto match = by_name.find(tensor.name);
    if (match == by_name.end())
      throw CheckpointError(
          fmt::format("{}: the model's layer has no tensor '{}'", file.place(), tensor.name));
    const TensorInfo& wanted = *match->second;
    const bool has_shape =
        tensor.name.starts_with(kOptimizer)
            ? is_state_shape(tensor.shape, wanted.shape) ||
                  (tensor.name.starts_with(kFactor) && is_factor_shape(tensor.shape, wanted.shape))
            : tensor.shape == wanted.shape;
    if (tensor.dtype != wanted.dtype || !has_shape) {
      throw CheckpointError(fmt::format(
          "{}: tensor '{}': expected {} of shape [{}] as in the model, found {} of shape [{}]",
          file.place(), tensor.name, wanted.dtype, fmt::join(wanted.shape, ", "), tensor.dtype,
          fmt::join(tensor.shape, ", ")));
    }
    by_name.erase(match);
  }
  if (!by_name.empty())
    throw CheckpointError(
        fmt::format("{}: tensor '{}' is missing", file.place(), by_name.begin()->first));
  return found;
}

void check_size(const FileReader& file, const FileRecord& record) {
  if (file.size() == record.bytes) return;
  throw CheckpointError(fmt::format("{}: the file is {}: expected {} bytes, found {}", file.place(),
                                    file.size() < record.bytes ? "truncated" : "too long",
                                    record.bytes, file.size()));
}

void check_crc(const FileReader& file, const FileRecord& record) {
  if (file.crc32() == record.crc32) return;
  throw CheckpointError(fmt::format("{}: the file is damaged: expected CRC-32 {:08x}, found {:08x}",
                                    file.place(), record.crc32, file.crc32()));
}

LayerState read_tensors(FileReader& file, const FileRecord& record, const OwnSpecs& specs,
                        const std::vector<std::string>& optimizer_states) {
  const std::vector<TensorInfo> found =
      check_header(file, expected_tensors(specs, optimizer_states));
  std::map<std::string, at::Tensor> tensors;
  for (const TensorInfo& info : found) {
    at::Tensor tensor = at::empty(info.shape, at::kFloat);
    file.read(tensor.data_ptr(), info.end - info.begin);
    tensors.emplace(info.name, std::move(tensor));
  }
  check_crc(file, record);
  const auto take = [&](const std::string& prefix, const Specs& all) {
    std::vector<at::Tensor> result;
    for (const model::ParameterSpec& spec : all) result.push_back(tensors.at(prefix + spec.name));
    return result;
  };
  LayerState state{.weights = take("weights.", specs.weights),
                   .buffers = take("buffers.", specs.buffers),
                   .carried = take("carried.", specs.carried)};
  for (const std::string& name : optimizer_states)
    state.optimizer[name] = take("optimizer." + name + ".", specs.weights);
  return state;
}

}  // namespace

FileRecord write_layer_file(const std::filesystem::path& folder, const std::string& name,
                            const OwnSpecs& specs, const LayerState& state) {
  std::vector<std::string> optimizer_states;
  for (const auto& [state_name, values] : state.optimizer) optimizer_states.push_back(state_name);
  std::vector<TensorInfo> infos = expected_tensors(specs, optimizer_states);
  const std::vector<at::Tensor> tensors = all_tensors(state);
  PENSTOCK_CHECK(tensors.size() == infos.size(), tensors.size(), infos.size(), name);
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].name.starts_with(kOptimizer)) infos[i].shape = tensors[i].sizes().vec();
  }
  FileWriter file(folder / name);
  const std::string header = make_safetensors_header(infos);
  file.write(header.data(), header.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = tensors[i].detach().to(at::kCPU).contiguous();
    PENSTOCK_CHECK(
        tensor.scalar_type() == at::kFloat && tensor.sizes() == at::IntArrayRef(infos[i].shape),
        name, infos[i].name);
    file.write(tensor.data_ptr(), tensor.nbytes());
  }
  file.finish();
  return {name, file.bytes(), file.crc32()};
}

LayerState read_layer_file(const std::filesystem::path& folder, const FileRecord& record,
                           const OwnSpecs& specs,
                           const std::vector<std::string>& optimizer_states) {
  FileReader file(folder / record.name);
  check_size(file, record);
  try {
    return read_tensors(file, record, specs, optimizer_states);
  } catch (const ParseError& error) {
    throw CheckpointError(error.what());
  }
}

void verify_file(const std::filesystem::path& folder, const FileRecord& record) {
  FileReader file(folder / record.name);
  check_size(file, record);
  file.skip_rest();
  check_crc(file, record);
}

}  // namespace penstock::train
