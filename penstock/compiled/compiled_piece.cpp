#include "penstock/compiled/compiled_piece.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "penstock/model/torch_compat.h"
#include "penstock/util/check.h"

namespace penstock::compiled {

using model::Tensors;
using torch::autograd::Edge;

namespace {

/// The whole piece as one operation of autograd.
struct PieceBackward final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& given) override {
    const PieceInterface& interface = program->interface;
    PENSTOCK_CHECK(given.size() == interface.tangents.size(), given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const at::Tensor like = outputs[i];
      saved.push_back(given[i].defined()
                          ? given[i].to(at::kFloat).contiguous()
                          : at::zeros(like.sizes(), like.options().device(at::kCPU)));
    }
    Tensors arguments = std::move(saved);
    saved.clear();
    return program->backward.run(arguments);
  }
  void release_variables() override { saved.clear(); }

  std::shared_ptr<const PieceProgram> program;
  Tensors saved;
  Tensors outputs;  ///< without numbers: on the device meta
};

Edge edge_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

std::vector<size_t> places_of(const JsonReader& list, size_t count) {
  std::vector<size_t> places;
  for (const JsonReader& one : list.elements())
    places.push_back(static_cast<size_t>(one.integer(0, static_cast<int64_t>(count) - 1)));
  return places;
}

}  // namespace

PieceInterface PieceInterface::read(const imported::PieceSteps& steps, const Json& answer,
                                    const std::string& place) {
  constexpr size_t kMostResults = 1'000'000;
  const size_t num_arguments = steps.text.at("arguments").size();
  PieceInterface made{.inputs = steps.inputs, .num_outputs = steps.text.at("outputs").size()};
  const JsonReader about(answer, place);
  for (const JsonReader& one : about.at("saved").elements()) {
    const bool is_argument = one.at("what").text() == "argument";
    const auto most = static_cast<int64_t>(is_argument ? num_arguments : kMostResults) - 1;
    made.saved.push_back({is_argument, static_cast<size_t>(one.at("place").integer(0, most))});
  }
  made.tangents = places_of(about.at("tangents"), made.num_outputs);
  made.gradients = places_of(about.at("gradients"), num_arguments);
  return made;
}

bool CompiledPiece::takes(model::TensorSpan inputs, const model::ForwardContext& context) const {
  if (!context.training || !context.device.is_cpu() || context.team != nullptr) return false;
  const std::vector<imported::PieceSteps::Input>& wanted = program_->interface.inputs;
  return inputs.size() == wanted.size() &&
         std::equal(inputs.begin(), inputs.end(), wanted.begin(),
                    [](const at::Tensor& input, const imported::PieceSteps::Input& one) {
                      return input.scalar_type() == one.type &&
                             input.sizes() == at::IntArrayRef(one.sizes);
                    });
}

Tensors CompiledPiece::forward(model::TensorSpan weights, model::MutableTensorSpan buffers,
                               model::TensorSpan inputs,
                               const model::ForwardContext& context) const {
  const PieceInterface& interface = program_->interface;
  Tensors arguments(weights.begin(), weights.end());
  arguments.insert(arguments.end(), buffers.begin(), buffers.end());
  for (const at::Tensor& input : inputs) arguments.push_back(input.contiguous());
  const Tensors constants = constants_(context.device);
  arguments.insert(arguments.end(), constants.begin(), constants.end());
  const Tensors masks = masks_(context.seed);
  arguments.insert(arguments.end(), masks.begin(), masks.end());
  Tensors results = program_->forward.run(arguments);
  const auto num_outputs = static_cast<std::ptrdiff_t>(interface.num_outputs);
  {
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < buffers.size(); ++b)
      buffers[b].copy_(results[interface.num_outputs + b]);
  }
  if (!at::GradMode::is_enabled()) {
    results.resize(interface.num_outputs);
    return results;
  }
  const model::NodePointer node = model::make_node<PieceBackward>();
  auto& backward = static_cast<PieceBackward&>(*node);
  backward.program = program_;
  for (const PieceInterface::Saved& one : interface.saved) {
    backward.saved.push_back(one.is_argument ? arguments[one.place].detach() : results[one.place]);
  }
  torch::autograd::edge_list edges;
  for (const size_t argument : interface.gradients) edges.push_back(edge_of(arguments[argument]));
  node->set_next_edges(std::move(edges));
  Tensors outputs;
  for (auto result = results.begin(); result != results.begin() + num_outputs; ++result)
    outputs.push_back(result->detach());
  for (const size_t output : interface.tangents) {
    backward.outputs.push_back(at::empty_like(outputs[output], at::TensorOptions(at::kMeta)));
    torch::autograd::create_gradient_edge(outputs[output], node);
  }
  return outputs;
}

}  // namespace penstock::compiled
