#include "penstock/imported/stored_values.h"

#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "penstock/model/device/tensor_memory.h"
#include "penstock/model/layers/int8_product.h"
#include "penstock/model/torch_compat.h"
#include "penstock/util/error.h"
#include "penstock/util/files/files.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

at::ScalarType torch_type(exported::ScalarType type) {
  switch (type) {
    case exported::ScalarType::Byte:
      return at::kByte;
    case exported::ScalarType::Char:
      return at::kChar;
    case exported::ScalarType::Short:
      return at::kShort;
    case exported::ScalarType::Int:
      return at::kInt;
    case exported::ScalarType::Long:
      return at::kLong;
    case exported::ScalarType::Half:
      return at::kHalf;
    case exported::ScalarType::Float:
      return at::kFloat;
    case exported::ScalarType::Double:
      return at::kDouble;
    case exported::ScalarType::ComplexFloat:
      return at::kComplexFloat;
    case exported::ScalarType::ComplexDouble:
      return at::kComplexDouble;
    case exported::ScalarType::Bool:
      return at::kBool;
    case exported::ScalarType::BFloat16:
      return at::kBFloat16;
    default:
      throw ConfigError(
          fmt::format("numbers of type {} are not supported", exported::to_string(type)));
  }
}

bool lies_within(const exported::StoredTensor& tensor) {
  const exported::TensorMeta& meta = tensor.meta;
  if (meta.strides.size() != meta.sizes.size() || meta.storage_offset.value < 0) return false;
  // A product of two numbers below 2^63 does not wrap around.
  __extension__ using Wide = __int128;
  const int64_t numbers = tensor.num_bytes / exported::size_of(meta.type);
  Wide last = meta.storage_offset.value;
  for (size_t d = 0; d < meta.sizes.size(); ++d) {
    if (meta.strides[d].value < 0) return false;
    last += static_cast<Wide>(meta.sizes[d].value - 1) * meta.strides[d].value;
    if (last >= numbers) return false;
  }
  return last < numbers;
}

namespace {

void check_bytes(const std::string& path, const exported::StoredTensor& tensor) {
  if (tensor.num_bytes == 0 || lies_within(tensor)) return;
  throw ConfigError(
      fmt::format("{}: a tensor reaches beyond its {} bytes", printable(path), tensor.num_bytes));
}

/// What is read in between is nothing that a layer's pass takes: profilers do not see it.
class Unseen final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t, model::TotalBytes, model::TotalBytes,
                         c10::Device) override {}
  bool memoryProfilingEnabled() const override { return false; }
};

/// In 8 bits. What is read for it goes at once.
at::Tensor packed(const std::string& path, const exported::StoredTensor& stored) {
  at::Tensor made;
  {
    const model::MemoryScope scope(MemoryKind::Working);
    const at::Tensor read = read_values(path, stored);
    if (!at::isfinite(read).all().item<bool>()) {
      throw ConfigError(
          fmt::format("{}: the frozen '{}' has numbers that are not finite, which 8 "
                      "bits cannot hold",
                      printable(path), printable(stored.name)));
    }
    made = model::pack_int8(read);
  }
  return made.clone();
}

}  // namespace

StoredConstant::StoredConstant(std::string path, exported::StoredTensor stored, Form form)
    : path_(std::move(path)),
      stored_(std::move(stored)),
      form_(form),
      type_(form == Form::Int8 ? at::kChar : torch_type(stored_.meta.type)),
      tensor_(at::Tensor().getIntrusivePtr()) {
  check_bytes(path_, stored_);
  for (const exported::SymbolicInt& size : stored_.meta.sizes) sizes_.push_back(size.value);
  if (form == Form::Int8) sizes_.at(1) = model::int8_row_bytes(sizes_[1]);
}

int64_t StoredConstant::num_bytes() const {
  auto bytes = static_cast<int64_t>(c10::elementSize(type_));
  for (const int64_t size : sizes_) bytes = saturating_mul(bytes, size);
  return bytes;
}

at::Tensor StoredConstant::tensor() const {
  const std::lock_guard lock(mutex_);
  if (auto known = tensor_.lock()) return at::Tensor(std::move(known));
  const c10::DebugInfoGuard unseen(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Unseen>());
  const model::MemoryScope scope(MemoryKind::Constants);
  const at::Tensor read =
      form_ == Form::Int8 ? packed(path_, stored_) : read_values(path_, stored_);
  tensor_ = read.getIntrusivePtr();
  return read;
}

at::Tensor read_values(const std::string& path, const exported::StoredTensor& tensor) {
  const auto options = at::TensorOptions().dtype(torch_type(tensor.meta.type));
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (const exported::SymbolicInt& size : tensor.meta.sizes) sizes.push_back(size.value);
  for (const exported::SymbolicInt& stride : tensor.meta.strides) strides.push_back(stride.value);
  if (tensor.num_bytes == 0) return at::zeros(sizes, options);  // importing refuses missing values
  check_bytes(path, tensor);
  const int64_t item = exported::size_of(tensor.meta.type);
  const at::Tensor storage = at::empty({tensor.num_bytes / item}, options);
  const std::string& from = tensor.file.empty() ? path : tensor.file;
  std::ifstream file(from, std::ios::binary);
  file.seekg(tensor.file_offset);
  file.read(static_cast<char*>(storage.data_ptr()), storage.numel() * item);
  if (!file) {
    throw ConfigError(
        fmt::format("'{}' cannot be read where '{}' is", printable(from), printable(tensor.name)));
  }
  const std::string_view bytes(static_cast<const char*>(storage.data_ptr()),
                               static_cast<size_t>(storage.numel() * item));
  if (bytes.size() == static_cast<size_t>(tensor.num_bytes) && crc32_of(bytes) != tensor.crc32) {
    throw ConfigError(fmt::format("'{}' is damaged: the check sum of '{}' is wrong",
                                  printable(from), printable(tensor.name)));
  }
  const at::Tensor values = storage.as_strided(sizes, strides, tensor.meta.storage_offset.value);
  // The whole storage, in order: no copy is needed.
  if (values.is_contiguous() && values.numel() == storage.numel()) return storage.view(sizes);
  return values.contiguous().clone();
}

}  // namespace penstock::imported
