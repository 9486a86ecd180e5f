#include "penstock/train/predictions.h"

#include <ATen/Functions.h>

#include <cstring>
#include <string>

#include "penstock/util/check.h"

namespace penstock::train {
namespace {

void add_number(std::string& text, int64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

int64_t take_number(const std::string& text, size_t& at) {
  int64_t number = 0;
  std::memcpy(&number, text.data() + at, sizeof(number));
  at += sizeof(number);
  return number;
}

/// First sample, whether whole numbers, sizes, values.
std::string text_of(const std::map<int64_t, at::Tensor>& outputs) {
  std::string text;
  for (const auto& [first, output] : outputs) {
    add_number(text, first);
    add_number(text, output.scalar_type() == at::kLong ? 1 : 0);
    add_number(text, output.dim());
    for (const int64_t size : output.sizes()) add_number(text, size);
    text.append(static_cast<const char*>(output.data_ptr()), output.nbytes());
  }
  return text;
}

void add_outputs(const std::string& text, std::map<int64_t, at::Tensor>& outputs) {
  for (size_t at = 0; at < text.size();) {
    const int64_t first = take_number(text, at);
    const at::ScalarType type = take_number(text, at) == 1 ? at::kLong : at::kFloat;
    std::vector<int64_t> sizes(static_cast<size_t>(take_number(text, at)));
    for (int64_t& size : sizes) size = take_number(text, at);
    at::Tensor output = at::empty(sizes, type);
    std::memcpy(output.data_ptr(), text.data() + at, output.nbytes());
    at += output.nbytes();
    outputs[first] = output;
  }
}

}  // namespace

at::Tensor NumberedBatches::targets(MicroBatchId b) const {
  const BatchCut::Range range = numbered_.range(b);
  return at::arange(range.begin, range.end, at::kLong);
}

model::Loss Predictions::keep() {
  return [this](const at::Tensor& output, const at::Tensor& samples, const model::MiniBatchSize&) {
    const at::ScalarType type = output.is_floating_point() ? at::kFloat : at::kLong;
    // A copy: the memory may be that of the next micro-batch.
    at::Tensor kept =
        output.detach().to(output.options().device(at::kCPU).dtype(type), false, true).contiguous();
    const int64_t first = samples.data_ptr<int64_t>()[0];
    const MutexLock lock(mutex_);
    outputs_[first] = std::move(kept);
    model::LossResult result;
    result.targets = samples.numel();
    return result;
  };
}

at::Tensor Predictions::of_all(const runtime::Ranks& ranks) const {
  std::map<int64_t, at::Tensor> all;
  {
    const MutexLock lock(mutex_);
    all = outputs_;
  }
  if (ranks.world != nullptr) {
    const std::vector<std::string> texts =
        runtime::together(ranks, [&all] { return text_of(all); });
    for (const std::string& text : texts) add_outputs(text, all);
  }
  PENSTOCK_CHECK(!all.empty());
  std::vector<at::Tensor> parts;
  for (const auto& [first, output] : all) parts.push_back(output);
  return at::cat(parts);
}

}  // namespace penstock::train
