#include "penstock/train/data/data_digest.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "penstock/util/files/files.h"

namespace penstock::train {

namespace {

constexpr int64_t kSamples = 64;

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

uint32_t crc_of(const Dataset& data) {
  if (data.size() == 0) return 0;
  std::vector<int64_t> all(static_cast<size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int64_t> some;
  for (int64_t i = 0; i < std::min(kSamples, data.size()); ++i)
    some.push_back(i * data.size() / std::min(kSamples, data.size()));
  // Classes are few; those of every place are as many as the inputs.
  const model::TargetSpec& spec = data.sample().targets;
  const at::Tensor targets = data.targets(spec.shape.empty() ? all : some);
  std::string crcs =
      fmt::to_string(targets.defined() ? crc32_of(bytes_of(targets.contiguous())) : 0);
  for (const at::Tensor& input : data.inputs(some))
    crcs += fmt::format(" {}", crc32_of(bytes_of(input.contiguous())));
  return crc32_of(crcs);
}

}  // namespace

std::string data_digest(const DataSplit& data) {
  return fmt::format("{}, {} + {} samples, CRC {:08x}", data.train->name(), data.train->size(),
                     data.test->size(),
                     crc32_of(fmt::format("{} {}", crc_of(*data.train), crc_of(*data.test))));
}

std::string data_digest(const Dataset& data) {
  return fmt::format("{}, {} samples, CRC {:08x}", data.name(), data.size(), crc_of(data));
}

}  // namespace penstock::train
