#include "penstock/train/top_hits.h"

#include <string>
#include <utility>

namespace penstock::train {

model::Loss TopHits::beside(model::Loss loss, model::LossSpec spec) {
  return [this, loss = std::move(loss), spec = std::move(spec)](
             const at::Tensor& output, const at::Tensor& targets,
             const model::MiniBatchSize& mini_batch) {
    hits_ += model::count_in_largest(output, targets, most_, spec);
    return loss(output, targets, mini_batch);
  };
}

bool has_top5(const model::Model& model, const model::LossSpec& loss) {
  return loss.name == "cross-entropy" && model::targets_for(model, loss).classes > kTopOutputs;
}

int64_t TopHits::of_all(const runtime::Ranks& ranks) const {
  if (ranks.world == nullptr) return hits_;
  int64_t sum = 0;
  for (const std::string& text :
       runtime::together(ranks, [this] { return std::to_string(hits_.load()); }))
    sum += std::stoll(text);
  return sum;
}

}  // namespace penstock::train
