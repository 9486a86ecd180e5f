#include "penstock/compiled/piece_speed.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "penstock/model/keeps_constants.h"
#include "penstock/model/profiling/thread_count.h"
#include "penstock/model/torch_compat.h"
#include "penstock/runtime/stage_module.h"

namespace penstock::compiled {

using model::Tensors;

namespace {

constexpr int kRounds = 5;

/// Gives back the constants that a measurement has read.
class ConstantsOf {
 public:
  ConstantsOf(const model::Model& model, LayerId first, LayerId last)
      : model_(model), first_(first), last_(last) {}
  ~ConstantsOf() {
    for (int l = first_.value; l <= last_.value; ++l)
      model::release_constants(model_.layer(LayerId{l}));
  }
  ConstantsOf(const ConstantsOf&) = delete;
  ConstantsOf& operator=(const ConstantsOf&) = delete;

 private:
  const model::Model& model_;
  LayerId first_;
  LayerId last_;
};

/// What both ways of running the layers start from.
struct PassInputs {
  Tensors weights;
  Tensors buffers;
  Tensors inputs;
};

PassInputs made_up(const runtime::StageModule& module,
                   const std::vector<imported::PieceSteps::Input>& inputs) {
  PassInputs made;
  for (const LayerId layer : module.layers()) {
    for (at::Tensor& weight : module.model().initial_weights(layer, 1))
      made.weights.push_back(weight.detach().requires_grad_());
    for (at::Tensor& buffer : module.model().initial_buffers(layer))
      made.buffers.push_back(std::move(buffer));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor input = at::zeros(inputs[i].sizes, inputs[i].type);
    if (at::isFloatingType(inputs[i].type)) input.uniform_(-1, 1);
    if (module.input_needs_gradient(i)) input.requires_grad_();
    made.inputs.push_back(std::move(input));
  }
  return made;
}

double seconds_of_pass(const runtime::StageModule& module, PassInputs& from) {
  const auto begin = std::chrono::steady_clock::now();
  const Tensors outputs = module.forward(from.weights, from.buffers, from.inputs, {.seed = 1});
  Tensors roots;
  Tensors gradients;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    gradients.push_back(at::ones_like(output));
  }
  torch::autograd::backward(roots, gradients);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

PassSeconds measure_passes(const model::Model& model, LayerId first, LayerId last,
                           const std::vector<imported::PieceSteps::Input>& inputs, int threads) {
  const model::ThreadCount guard(threads);
  const ConstantsOf constants(model, first, last);
  const std::vector<StageId> stages =
      runtime::stages_around(first, last, model.graph().num_layers());
  const runtime::StageModule layers(model, stages, StageId{1}, {}, runtime::Pieces::LayerByLayer);
  const runtime::StageModule piece(model, stages, StageId{1});
  PassInputs from = made_up(layers, inputs);
  seconds_of_pass(layers, from);
  seconds_of_pass(piece, from);
  constexpr double kNone = std::numeric_limits<double>::max();
  PassSeconds best{.layers = kNone, .piece = kNone};
  for (int round = 0; round < kRounds; ++round) {
    best.layers = std::min(best.layers, seconds_of_pass(layers, from));
    best.piece = std::min(best.piece, seconds_of_pass(piece, from));
  }
  return best;
}

bool is_worth_it(const PassSeconds& seconds) {
  constexpr double kLeastGain = 1.02;
  return seconds.layers >= kLeastGain * seconds.piece;
}

}  // namespace penstock::compiled
