#include "penstock/train/coverage.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <limits>

#include "penstock/util/error.h"

namespace penstock::train {

Attending attending_layer(const model::Model& model) {
  std::vector<Attending> found;
  for (int32_t l = 0; l < model.graph().num_layers(); ++l) {
    const auto* attends = dynamic_cast<const model::Attends*>(&model.layer(LayerId{l}));
    if (attends != nullptr) found.push_back({LayerId{l}, attends});
  }
  if (found.size() == 1) return found.front();
  throw ConfigError(fmt::format(
      "the coverage penalty needs one layer that says how much each word of a translation attends "
      "to each word of its source, as gnmt8 has one; the model '{}' has {}: expected a penalty of "
      "0",
      model.name(), found.empty() ? "none" : fmt::format("{} of them", found.size())));
}

std::vector<double> coverage(const model::AttentionShares& attention, int64_t place) {
  const at::Tensor sums =
      attention.shares.narrow(1, 0, place + 1).to(at::kFloat).sum(1);  // [batch, sources]
  const at::Tensor places = at::arange(sums.size(1), attention.lengths.options());
  const at::Tensor of_words = sums.clamp(std::numeric_limits<float>::min(), 1)
                                  .log()
                                  .masked_fill(places >= attention.lengths, 0);
  const at::Tensor whole = of_words.sum(1).to(at::kCPU, at::kDouble).contiguous();
  return {whole.data_ptr<double>(), whole.data_ptr<double>() + whole.numel()};
}

}  // namespace penstock::train
