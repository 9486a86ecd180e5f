#include "penstock/runtime/norm_part.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/ordered_sum.h"

namespace penstock::runtime {

NormPart::NormPart(const StageContext& context, StageSums& sums)
    : context_(context),
      sums_(sums),
      on_one_gpu_(context.run.devices.is_one_gpu() &&
                  context.device().compute().memory().is_cuda()) {}

void NormPart::contribute(MiniBatchId mini_batch, NormShare& share) {
  const Tensors& gradients = sums_.ready(mini_batch);
  contribute_ties(gradients, share);
  contribute_squares(gradients, share);
}

void NormPart::contribute_ties(const Tensors& gradients, NormShare& share) {
  WorkerDevice& device = context_.device();
  for (const StageTies::Copy& copy : context_.replica.ties->across) {
    if (context_.replica.replica == 0) {
      at::Tensor gradient = gradients[copy.weight];
      if (!device.is_host() && !on_one_gpu_)
        gradient = std::move(device.to_host({gradient}).front());
      share.tied.push_back({copy.group, copy.copy, std::move(gradient)});
    }
    share.wanted.push_back(copy.group);
  }
  // Others add to it on streams of their own.
  if (!share.tied.empty() && on_one_gpu_) device.compute().synchronize();
}

void NormPart::contribute_squares(const Tensors& gradients, NormShare& share) {
  WorkerDevice& device = context_.device();
  Tensors norms;
  std::vector<size_t> places;  // of their squares in the share
  const auto replicas = static_cast<size_t>(context_.num_replicas());
  const auto replica = static_cast<size_t>(context_.replica.replica);
  const std::vector<size_t>& offsets = context_.module().weight_offsets();
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    for (size_t w = offsets[i]; w < offsets[i + 1]; ++w) {
      // The replicas have the same gradients and divide the work.
      if (w % replicas != replica || !context_.replica.ties->counts[w]) continue;
      const size_t number = context_.module().first_model_weight(i) + w - offsets[i];
      if (device.is_host()) {
        share.squares.push_back({number, sum_of_squares(gradients[w])});
        continue;
      }
      if (gradients[w].defined()) {
        places.push_back(share.squares.size());
        norms.push_back(norm_of(gradients[w]));
      }
      share.squares.push_back({number, 0});
    }
  }
  if (norms.empty()) return;
  // One wait for the norms of all weights.
  const at::NoGradGuard no_grad;
  const at::Tensor read = std::move(device.to_host({at::stack(norms)}).front());
  const double* const numbers = read.data_ptr<double>();
  for (size_t k = 0; k < norms.size(); ++k) share.squares[places[k]].sum = numbers[k] * numbers[k];
}

void NormPart::take_tied_sums(MiniBatchId mini_batch, const NormTotals& totals) {
  Tensors& gradients = sums_.ready(mini_batch);
  for (const StageTies::Copy& copy : context_.replica.ties->across) {
    const at::Tensor& sum = totals.tied_sums.at(copy.group);
    gradients[copy.weight] = on_one_gpu_ ? sum : context_.device().to_device(sum);
  }
}

void NormPart::scale_gradients(MiniBatchId mini_batch, double factor) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : sums_.ready(mini_batch)) {
    if (!gradient.defined()) continue;
    if (is_exclusive(gradient))
      gradient.mul_(factor);
    else
      gradient = gradient * factor;
  }
}

void NormPart::skip_step(MiniBatchId mini_batch) {
  for (at::Tensor& gradient : sums_.ready(mini_batch)) gradient.reset();
}

}  // namespace penstock::runtime
