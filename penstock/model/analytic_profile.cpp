#include "penstock/model/analytic_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/model/float32_layers.h"
#include "penstock/model/layers/work.h"
#include "penstock/model/profiling/values.h"
#include "penstock/model/shapes.h"
#include "penstock/profile/roofline.h"
#include "penstock/profile/saved_values.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::model {
namespace {

using profile::LayerCost;
using profile::Operation;

/// Larger tensors are treated as a mistake; sums of a model's sizes stay far below the limit of 64
/// bits.
constexpr int64_t kMaxBytes = int64_t{1} << 60;
/// 36 years: a slower device is a mistake in its file.
constexpr int64_t kMaxNs = int64_t{1} << 60;

/// Which layers compute gradients, and how many gradients are summed for each of their outputs.
class GradientFlow {
 public:
  explicit GradientFlow(const Model& model)
      : model_(model), outputs_need_(detail::layers_with_gradients(model)) {
    const int layers = model.graph().num_layers();
    for (const graph::LayerNode& node : model.graph().layers()) {
      inputs_need_.push_back(std::ranges::any_of(
          node.inputs, [this](const graph::ValueRef& input) { return needed(input); }));
      arriving_.emplace_back(static_cast<size_t>(node.num_outputs), 0);
    }
    for (const graph::ValueRef& output : model.graph().outputs()) arrive(output);
    for (int i = layers - 1; i >= 0; --i) {
      if (!runs_backward(LayerId{i})) continue;
      for (const graph::ValueRef& input : model.graph().layer(LayerId{i}).inputs) arrive(input);
    }
  }

  bool outputs_need(LayerId id) const { return outputs_need_[id.index()]; }
  bool inputs_need(LayerId id) const { return inputs_need_[id.index()]; }
  bool runs_backward(LayerId id) const {
    for (const int64_t count : arriving_[id.index()]) {
      if (count > 0) return outputs_need_[id.index()];
    }
    return false;
  }
  const std::vector<int64_t>& arriving(LayerId id) const { return arriving_[id.index()]; }

 private:
  bool needed(const graph::ValueRef& value) const {
    return !value.is_model_input() && outputs_need_[value.layer.index()] &&
           at::isFloatingType(detail::type_of(model_, value));
  }
  void arrive(const graph::ValueRef& value) {
    if (needed(value)) ++arriving_[value.layer.index()][static_cast<size_t>(value.output)];
  }

  const Model& model_;
  std::vector<bool> outputs_need_;
  std::vector<bool> inputs_need_;
  std::vector<std::vector<int64_t>> arriving_;  ///< [layer][output]
};

class Estimate {
 public:
  Estimate(const Model& model, const profile::DeviceSpec& device, const AnalyticOptions& options)
      : model_(model),
        device_(device),
        batch_(options.batch_size),
        optimizer_states_(std::llround(std::ceil(usual_state(options.optimizer)))),
        flow_(model) {
    for (int l = 0; l < model.graph().num_layers(); ++l) {
      const LayerId id{l};
      const profile::LayerWork& work = works_.emplace_back(
          model.layer(id).work(input_shapes(id), model.output_shapes(id), batch_));
      // Autograd records a layer though its gradients may never be asked for.
      const bool is_recorded = flow_.outputs_need(id);
      saves_.push_back(profile::saves_of(model.graph().layer(id), is_recorded && work.saves_inputs,
                                         is_recorded && work.saves_outputs, work.is_view));
      if (!is_recorded) continue;
      if (!work.saved_inputs.empty()) saves_.back().inputs = work.saved_inputs;
      if (!work.saved_outputs.empty()) saves_.back().outputs = work.saved_outputs;
    }
    saved_bytes_ = profile::saved_bytes(
        model.graph(), saves_, [this](const graph::ValueRef& value) { return bytes_of(value); });
  }

  LayerCost layer(LayerId id) const {
    const profile::LayerWork& work = works_[id.index()];
    LayerCost cost;
    cost.forward_ns = profile::operations_ns(work.forward, device_);
    if (flow_.runs_backward(id)) {
      cost.backward_ns = backward_ns(id, work);
      // The rest is done together with the inputs' gradients, where those are needed.
      const bool waits = model_.layer(id).weight_gradients_can_wait() || !flow_.inputs_need(id);
      if (waits) cost.backward_weight_ns = profile::operations_ns(work.backward_weights, device_);
    }
    add_loss(id, cost);
    cost.weight_bytes = detail::tensor_bytes(model_.parameter_count(id));
    cost.constant_bytes = model_.layer(id).constant_bytes();
    cost.tied_bytes = model_.tied_bytes(id);
    cost.matrices = detail::weight_matrices(model_.layer(id));
    for (const ParameterSpec& spec : model_.layer(id).parameters()) {
      const int64_t numbers = detail::batch_numbers({spec.shape}, 1);
      if (cost.backward_ns > 0) {
        cost.accumulate_ns = saturating_add(cost.accumulate_ns,
                                            ns(detail::elementwise({numbers, numbers, numbers})));
      }
      cost.step_ns = saturating_add(cost.step_ns, step_ns(numbers));
    }
    const auto* const own = dynamic_cast<const MayHaveOwnTypes*>(&model_.layer(id));
    if (own != nullptr && own->own_weight_type().value_or(at::kFloat) != at::kFloat)
      cost.short_weight_bytes = cost.weight_bytes;
    for (int o = 0; o < std::ssize(model_.output_shapes(id)); ++o)
      cost.output_bytes.push_back(checked(id, bytes_of({id, o})));
    cost.stash_bytes = stash_bytes(id, cost.output_bytes);
    cost.working_bytes = working_bytes(id, cost);
    cost.saves = saves_[id.index()];
    if (std::max({cost.forward_ns, cost.backward_ns, cost.accumulate_ns, cost.step_ns}) > kMaxNs) {
      throw ConfigError(
          fmt::format("analytic profile: layer '{}' would take more than 2^60 ns on device '{}' "
                      "with {} samples",
                      model_.graph().layer(id).name, device_.name, batch_));
    }
    return cost;
  }

 private:
  std::vector<Shape> input_shapes(LayerId id) const {
    std::vector<Shape> shapes;
    for (const graph::ValueRef& value : model_.graph().layer(id).inputs)
      shapes.push_back(detail::shape_of(model_, value));
    return shapes;
  }

  int64_t backward_ns(LayerId id, const profile::LayerWork& work) const {
    int64_t total = profile::operations_ns(work.backward_weights, device_);
    if (flow_.inputs_need(id))
      total = saturating_add(total, profile::operations_ns(work.backward_inputs, device_));
    for (size_t i = 0; i < flow_.arriving(id).size(); ++i) {
      const int64_t additions = flow_.arriving(id)[i] - 1;
      if (additions < 1) continue;
      const int64_t numbers = detail::batch_numbers({model_.output_shapes(id)[i]}, batch_);
      total = saturating_add(
          total, saturating_mul(additions, ns(detail::elementwise({numbers, numbers, numbers}))));
    }
    return total;
  }

  int64_t bytes_of(const graph::ValueRef& value) const {
    return saturating_mul(detail::batch_numbers({detail::shape_of(model_, value)}, batch_),
                          static_cast<int64_t>(c10::elementSize(detail::type_of(model_, value))));
  }

  /// What its operations save, the loss among them.
  int64_t stash_bytes(LayerId id, const std::vector<int64_t>& output_bytes) const {
    const profile::LayerWork& work = works_[id.index()];
    if (!flow_.outputs_need(id)) return saved_bytes_[id.index()];
    int64_t own = checked(id, work.stash_bytes);
    for (const int64_t output : output_bytes) own -= work.is_view ? 0 : output;
    return checked(id, saturating_add(saturating_add(std::max<int64_t>(own, 0), loss_bytes(id)),
                                      saved_bytes_[id.index()]));
  }

  /// The gradients of outputs, of inputs that need them, and of weights. That of the logits is what
  /// the loss keeps.
  int64_t working_bytes(LayerId id, const LayerCost& cost) const {
    if (!flow_.runs_backward(id)) return 0;
    int64_t bytes = cost.weight_bytes;
    if (works_[id.index()].is_view) return bytes;
    for (const int64_t output : cost.output_bytes) {
      if (loss_bytes(id) == 0) bytes = saturating_add(bytes, output);
    }
    if (!flow_.inputs_need(id)) return bytes;
    for (const graph::ValueRef& value : model_.graph().layer(id).inputs) {
      if (!value.is_model_input()) bytes = saturating_add(bytes, bytes_of(value));
    }
    return bytes;
  }

  /// Of logits for the cross-entropy, of samples or of the places of sequences; 0 where this layer
  /// does not make them.
  int64_t logits(LayerId id) const {
    const graph::ValueRef& result = model_.graph().outputs().front();
    if (result.is_model_input() || result.layer != id || !flow_.runs_backward(id)) return 0;
    const Shape& shape = model_.output_shapes(id).at(static_cast<size_t>(result.output));
    return shape.size() == 1 || shape.size() == 2 ? detail::batch_numbers({shape}, batch_) : 0;
  }

  /// What the loss keeps: the gradient of the logits, and itself.
  int64_t loss_bytes(LayerId id) const {
    const int64_t numbers = model_.graph().outputs().size() == 1 ? logits(id) : 0;
    return numbers > 0 ? detail::tensor_bytes(saturating_add(numbers, 1)) : 0;
  }

  /// Cross-entropy of the first output where it is a vector of logits: softmax and its logarithm,
  /// then the gradient.
  void add_loss(LayerId id, LayerCost& cost) const {
    const int64_t numbers = logits(id);
    if (numbers == 0) return;
    const int64_t forward_ns = ns(detail::normalization({numbers, numbers}));
    const int64_t backward_ns = ns(detail::elementwise({numbers, numbers, numbers}));
    cost.forward_ns = saturating_add(cost.forward_ns, forward_ns);
    cost.backward_ns = saturating_add(cost.backward_ns, backward_ns);
    cost.loss_ns = saturating_add(forward_ns, backward_ns);
  }

  /// Reads weight, gradient and state; writes weight and state.
  int64_t step_ns(int64_t numbers) const {
    Operation step = detail::elementwise({numbers});
    step.bytes = saturating_mul(step.bytes, 3 + 2 * optimizer_states_);
    return ns(step);
  }

  int64_t ns(const Operation& operation) const { return profile::operation_ns(operation, device_); }

  int64_t checked(LayerId id, int64_t bytes) const {
    if (bytes >= 0 && bytes <= kMaxBytes) return bytes;
    throw ConfigError(fmt::format(
        "analytic profile: a micro-batch of {} samples needs more than 2^60 bytes in layer '{}'",
        batch_, model_.graph().layer(id).name));
  }

  const Model& model_;
  const profile::DeviceSpec& device_;
  int64_t batch_;
  int64_t optimizer_states_;
  GradientFlow flow_;
  std::vector<profile::LayerWork> works_;  ///< by layer
  std::vector<profile::LayerSaves> saves_;
  std::vector<int64_t> saved_bytes_;  ///< by layer
};

}  // namespace

profile::Profile analytic_profile(const Model& model, const profile::DeviceSpec& device,
                                  const AnalyticOptions& options) {
  profile::validate(device);
  if (options.batch_size < 1 || options.batch_size > detail::kMaxElements) {
    throw ConfigError(fmt::format("analytic profile: batch size must be between 1 and {}, found {}",
                                  detail::kMaxElements, options.batch_size));
  }
  if (model.graph().num_layers() == 0)
    throw ConfigError(fmt::format("analytic profile: model '{}' has no layers", model.name()));
  const Estimate estimate(model, device, options);
  profile::Profile result;
  result.model = model.name();
  result.device = device.name;
  result.source = "analytic";
  result.batch_size = options.batch_size;
  result.copy_bandwidth_bytes_per_s = profile::summing_bandwidth(device);
  result.graph = model.graph();
  for (int i = 0; i < model.graph().num_layers(); ++i)
    result.costs.push_back(estimate.layer(LayerId{i}));
  profile::validate(result);  // a user's layer may report impossible counts
  return result;
}

}  // namespace penstock::model
