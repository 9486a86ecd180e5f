#include "penstock/model/mixing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <span>
#include <utility>

#include "penstock/model/counts_targets.h"
#include "penstock/model/keeps_constants.h"
#include "penstock/model/precision.h"
#include "penstock/model/profiling/values.h"
#include "penstock/model/random_input.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::model {

namespace {

/// Of the largest number: what other orders of sums make is below it.
struct Tolerances {
  double output = 1e-4;
  double loss = 2e-5;
};
constexpr Tolerances kOf16Bits{.output = 3e-2, .loss = 1e-2};
/// Times what the order of the samples makes of a loss.
constexpr double kNoise = 20;
constexpr int64_t kIgnored = -100;

/// Samples to compare, cut in two before sample `cut`.
struct Draw {
  int64_t samples = 0;
  int64_t cut = 0;
  bool is_unequal = false;  ///< the parts have other scales and other masks
  bool ignores = false;     ///< so many labels are ignored, too
};
constexpr std::array kDraws = {Draw{4, 2}, Draw{6, 2, true}, Draw{6, 4, true, true}};

/// What large models are compared with.
constexpr Draw kSmallDraw{2, 1};
constexpr Draw kSmallDrawOfLabels{2, 1, true, true};

/// Multiplications and additions that the comparisons may take: seconds of two cores.
constexpr double kMostWork = 3e11;

/// One pass through the model.
struct Pass {
  Tensors inputs;
  uint64_t seed = 1;
  std::map<LayerId, Tensors> outputs = {};

  const at::Tensor& value(const graph::ValueRef& ref) const {
    const auto output = static_cast<size_t>(ref.output);
    return ref.is_model_input() ? inputs.at(output) : outputs.at(ref.layer).at(output);
  }
};

/// Layer by layer for all passes, so that the weights of one layer are in memory at a time.
void run(const Model& model, std::vector<Pass>& passes) {
  std::map<LayerId, int> last_use;
  const graph::ModelGraph& graph = model.graph();
  for (int i = 0; i < graph.num_layers(); ++i) {
    for (const graph::ValueRef& ref : graph.layer(LayerId{i}).inputs) {
      if (!ref.is_model_input()) last_use[ref.layer] = i;
    }
  }
  last_use[graph.outputs().front().layer] = graph.num_layers();
  for (int i = 0; i < graph.num_layers(); ++i) {
    const LayerId id{i};
    const Tensors weights = model.initial_weights(id, /*seed=*/1);
    for (Pass& pass : passes) {
      Tensors buffers = model.initial_buffers(id);
      Tensors inputs;
      for (const graph::ValueRef& ref : graph.layer(id).inputs) inputs.push_back(pass.value(ref));
      const ForwardContext context{.training = false,
                                   .seed = derive_seed(pass.seed, static_cast<uint64_t>(i))};
      pass.outputs[id] = model.layer(id).forward(weights, buffers, inputs, context);
      std::erase_if(pass.outputs, [&](const auto& made) {
        const auto last = last_use.find(made.first);
        return last == last_use.end() || last->second <= i;
      });
    }
    release_constants(model.layer(id));
  }
}

double largest(const at::Tensor& values) { return values.abs().max().item<double>(); }

/// One sample after the other: logits of large vocabularies are larger than the model's weights.
bool differ(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others,
            double tolerance) {
  if (ones.size() != others.size()) return true;
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < ones.size(); ++i) {
    if (ones[i].sizes() != others[i].sizes()) return true;
    const at::Tensor one = ones[i].to(at::kDouble);
    const at::Tensor other = others[i].to(at::kDouble);
    // Numbers that are none make the sums none, too, and those differ from nothing.
    const double here = largest(one.sub(other));
    if (std::isnan(here)) return false;
    difference = std::max(difference, here);
    size = std::max({size, largest(one), largest(other)});
  }
  return difference > tolerance * size;
}

/// Whole numbers that are neither rows of a table nor a mask.
bool may_be_labels(const InputSpec& input) {
  return at::isIntegralType(input.type, /*includeBool=*/false) && input.values == 0 &&
         input.name.find("mask") == std::string::npos;
}

/// [samples, ...] truth values: of each sample the first ones, fewer and fewer.
at::Tensor first_places(const at::Tensor& like) {
  const int64_t samples = like.size(0);
  const int64_t places = std::max<int64_t>(1, like.numel() / samples);
  const at::Tensor row = at::arange(samples, at::kLong).view({samples, 1});
  const at::Tensor place = at::arange(places, at::kLong).view({1, places});
  if (places == 1) return row.remainder(3).ne(1).view(like.sizes());
  return place.mul(samples).lt(row.neg().add(samples).mul(places)).view(like.sizes());
}

Tensors samples_of(const Model& model, const Draw& draw, at::Generator& generator) {
  Tensors samples;
  for (const InputSpec& input : model.inputs()) {
    at::Tensor tensor = random_input(input, draw.samples, generator);
    if (draw.is_unequal && at::isFloatingType(input.type)) {
      tensor.slice(0, draw.cut).mul_(3);
    } else if (draw.is_unequal && may_be_labels(input)) {
      tensor.random_(0, 2, generator);
      if (draw.ignores) tensor.masked_fill_(first_places(tensor).logical_not(), kIgnored);
    } else if (draw.is_unequal && input.values == 0) {
      tensor.mul_(first_places(tensor));
    }
    samples.push_back(std::move(tensor));
  }
  return samples;
}

/// Whether the loss of all is the mean of the parts' losses, each with its weight.
bool is_mean(double whole, double reversed, std::span<const double> parts,
             std::span<const double> weights, const Tolerances& tolerances) {
  double sum = 0;
  double weight = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (weights[p] == 0) continue;  // a mean over nothing is no number
    sum += parts[p] * weights[p];
    weight += weights[p];
  }
  const double mean = sum / weight;
  const double size = std::max(std::abs(whole), std::abs(mean));
  const double noise = std::abs(whole - reversed);
  if (noise > tolerances.output * size) return false;  // it depends on the order of samples
  return !(std::abs(whole - mean) > std::max(tolerances.loss * size, kNoise * noise));
}

/// Multiplications and additions of one sample, forward.
double work_of_sample(const Model& model) {
  double work = 0;
  for (int l = 0; l < model.graph().num_layers(); ++l) {
    const LayerId id{l};
    std::vector<Shape> inputs;
    for (const graph::ValueRef& value : model.graph().layer(id).inputs)
      inputs.push_back(detail::shape_of(model, value));
    for (const profile::Operation& operation :
         model.layer(id).work(inputs, model.output_shapes(id), 1).forward)
      work += static_cast<double>(operation.flops);
  }
  return work;
}

/// Samples that compare() takes through the model.
int64_t samples_in(const Draw& draw, const Model& model) {
  return draw.samples * (2 + (draw.is_unequal ? 0 : 1) + (model.returns_loss() ? 1 : 0));
}

/// Those that are worth their time, of which there may be none.
std::vector<Draw> draws_for(const Model& model) {
  if (model.graph().outputs().empty()) return {};
  const bool has_labels = model.returns_loss() &&
                          std::any_of(model.inputs().begin(), model.inputs().end(), may_be_labels);
  std::vector<Draw> draws;
  int64_t samples = 0;
  for (const Draw& draw : kDraws) {
    if (draw.ignores && !has_labels) continue;
    draws.push_back(draw);
    samples += samples_in(draw, model);
  }
  const double work = work_of_sample(model);
  if (work * static_cast<double>(samples) <= kMostWork) return draws;
  const Draw small = has_labels ? kSmallDrawOfLabels : kSmallDraw;
  if (work * static_cast<double>(samples_in(small, model)) <= kMostWork) return {small};
  return {};
}

enum class Mixing : uint8_t { None, Mixed, Random };

Mixing compare(const Model& model, const Draw& draw, at::Generator& generator) {
  const Tolerances tolerances = has_own_types(model) ? kOf16Bits : Tolerances();
  const Tensors samples = samples_of(model, draw, generator);
  const auto part = [&](int64_t begin, int64_t end) {
    Tensors rows;
    for (const at::Tensor& tensor : samples) rows.push_back(tensor.slice(0, begin, end).clone());
    return rows;
  };
  std::vector<Pass> passes;
  passes.push_back({.inputs = part(0, draw.samples)});
  passes.push_back({.inputs = part(0, draw.cut)});
  passes.push_back({.inputs = part(draw.cut, draw.samples)});
  const bool looks_for_chance = !draw.is_unequal;
  if (looks_for_chance) passes.push_back({.inputs = part(0, draw.samples), .seed = 2});
  if (model.returns_loss()) {
    Tensors reversed;
    for (const at::Tensor& tensor : samples) reversed.push_back(tensor.flip(0));
    passes.push_back({.inputs = std::move(reversed)});
  }
  const TargetCount count = target_count(model);
  std::vector<double> weights;
  for (const size_t p : {size_t{1}, size_t{2}}) {
    const Tensors& inputs = passes[p].inputs;
    weights.push_back(static_cast<double>(count ? count(inputs) : inputs.front().size(0)));
  }
  run(model, passes);
  const graph::ValueRef output = model.graph().outputs().front();
  const auto result = [&](size_t p) { return passes[p].value(output); };
  const std::vector<at::Tensor> whole = result(0).unbind(0);
  if (looks_for_chance && differ(whole, result(3).unbind(0), tolerances.output))
    return Mixing::Random;
  if (model.returns_loss()) {
    const auto loss = [&](size_t p) { return result(p).to(at::kDouble).mean().item<double>(); };
    const std::array parts = {loss(1), loss(2)};
    return is_mean(loss(0), loss(passes.size() - 1), parts, weights, tolerances) ? Mixing::None
                                                                                 : Mixing::Mixed;
  }
  std::vector<at::Tensor> parts = result(1).unbind(0);
  const std::vector<at::Tensor> rest = result(2).unbind(0);
  parts.insert(parts.end(), rest.begin(), rest.end());
  return differ(whole, parts, tolerances.output) ? Mixing::Mixed : Mixing::None;
}

}  // namespace

bool mixes_samples(const Model& model) {
  const c10::AutoGradMode no_grad(false);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(hash_name("mixing"));
  for (const Draw& draw : draws_for(model)) {
    try {
      const Mixing found = compare(model, draw, generator);
      if (found != Mixing::None) return found == Mixing::Mixed;
    } catch (const std::exception&) {
      // What is wrong is said by those who need the model; other numbers may be right for it.
    }
  }
  return false;
}

bool is_too_large_to_compare(const Model& model) {
  return !model.graph().outputs().empty() && draws_for(model).empty();
}

}  // namespace penstock::model
