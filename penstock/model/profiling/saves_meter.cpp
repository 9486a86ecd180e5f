#include "penstock/model/profiling/saves_meter.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace penstock::model::detail {

namespace {

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.storage().is_alias_of(b.storage());
}

size_t num_sharing(const at::Tensor& tensor, TensorSpan others) {
  return static_cast<size_t>(std::ranges::count_if(
      others, [&](const at::Tensor& other) { return share_memory(tensor, other); }));
}

/// The tensors behind the outputs that share this memory, which these refer to as views: that of
/// linear() on more than two dimensions. Each once.
size_t num_bases(const at::Tensor& tensor, TensorSpan outputs) {
  Tensors bases;
  for (const at::Tensor& output : outputs) {
    if (!output.is_view() || !share_memory(tensor, output)) continue;
    at::Tensor base(output._base());
    const auto is_base = [&](const at::Tensor& other) { return other.is_same(base); };
    if (std::ranges::none_of(bases, is_base) && std::ranges::none_of(outputs, is_base))
      bases.push_back(std::move(base));
  }
  return bases.size();
}

}  // namespace

SavesMeter::Count SavesMeter::count(const at::Tensor& tensor) {
  return {tensor.use_count(), tensor.has_storage() ? tensor.storage().use_count() : 0};
}

SavesMeter::SavesMeter(TensorSpan inputs) {
  for (const at::Tensor& input : inputs) before_.push_back(count(input));
}

profile::LayerSaves SavesMeter::saves(TensorSpan inputs, TensorSpan outputs) const {
  profile::LayerSaves found;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Count now = count(inputs[i]);
    // An output that is a view of it refers to it and shares its memory; the end of the graph
    // refers to it.
    const size_t views = num_sharing(inputs[i], outputs);
    const bool is_end = torch::autograd::impl::try_get_grad_accumulator(inputs[i]) != nullptr;
    found.inputs.push_back(now.tensor > before_[i].tensor + views + (is_end ? 1 : 0) ||
                           now.storage > before_[i].storage + views);
  }
  for (const at::Tensor& output : outputs) {
    const auto source = std::ranges::find_if(
        inputs, [&](const at::Tensor& input) { return share_memory(output, input); });
    found.view_of.push_back(source == inputs.end() ? -1
                                                   : static_cast<int>(source - inputs.begin()));
    found.outputs.push_back(source == inputs.end() && output.has_storage() &&
                            output.storage().use_count() >
                                num_sharing(output, outputs) + num_bases(output, outputs));
  }
  return found;
}

}  // namespace penstock::model::detail
