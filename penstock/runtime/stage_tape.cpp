#include "penstock/runtime/stage_tape.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <utility>

#include "penstock/model/device/layout.h"
#include "penstock/model/precision.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

namespace {

/// `joins(i, next)`: whether layer i is of the same segment as the next one of its chain.
template <class Joins>
SegmentEnds segment_ends(const StageModule& module, Joins joins) {
  SegmentEnds ends(module.places().size());
  for (size_t i = ends.size(); i-- > 0;) {
    const std::optional<size_t> last = module.places()[i].computed_in;
    const std::optional<size_t> next = module.places()[i].next_in_chain;
    ends[i] = last ? ends[*last] : next && joins(i, *next) ? ends[*next] : i;
  }
  return ends;
}

}  // namespace

SegmentEnds cut_everywhere(const StageModule& module) {
  return segment_ends(module, [](size_t, size_t) { return false; });
}

SegmentEnds cut_by_weights(const StageModule& module, int64_t most_bytes) {
  const std::vector<size_t>& offsets = module.weight_offsets();
  const std::vector<model::Shape> shapes = module.weight_shapes();
  std::vector<int64_t> sums(module.places().size());  // of the segment, from this layer on
  for (size_t i = 0; i < sums.size(); ++i) {
    int64_t& sum = sums[module.places()[i].computed_in.value_or(i)];
    for (size_t w = offsets[i]; w < offsets[i + 1]; ++w)
      sum += c10::multiply_integers(shapes[w]) * static_cast<int64_t>(sizeof(float));
  }
  // Asked from the last layer to the first.
  return segment_ends(module, [&](size_t i, size_t next) {
    const bool joins = sums[i] == 0 || sums[next] == 0 || sums[i] + sums[next] <= most_bytes;
    if (joins) sums[i] += sums[next];
    return joins;
  });
}

SegmentEnds cut_between_buckets(const StageModule& module, const std::vector<size_t>& bucket_ends) {
  // Layers without weights go with the one before them, whose gradients need theirs.
  std::vector<size_t> buckets;
  const std::vector<size_t>& offsets = module.weight_offsets();
  for (size_t i = 0; i < module.places().size(); ++i) {
    size_t bucket = buckets.empty() ? 0 : buckets.back();
    if (offsets[i] < offsets[i + 1]) {
      while (offsets[i] >= bucket_ends[bucket]) ++bucket;
    }
    buckets.push_back(bucket);
  }
  return segment_ends(module, [&](size_t i, size_t next) { return buckets[i] == buckets[next]; });
}

Tensors StageTape::forward(TensorSpan weights, MutableTensorSpan buffers, TensorSpan inputs,
                           const model::ForwardContext& context, const BeforeLayer& before_layer) {
  const at::AutoGradMode with_graph(true);
  PENSTOCK_CHECK(inputs.size() == module_->inputs().size(), inputs.size(),
                 module_->inputs().size());
  PENSTOCK_CHECK(weights.size() == module_->weight_offsets().back(), weights.size(),
                 module_->weight_offsets().back());
  Tensors values(module_->num_slots());
  std::vector<bool> needs_gradient(module_->num_slots(), false);
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[i] = inputs[i];
    needs_gradient[i] =
        module_->input_needs_gradient(i) && inputs[i].defined() && inputs[i].is_floating_point();
  }
  segments_.resize(module_->places().size());
  Tensors entered;
  Tensors arguments;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const LayerPlace& place = module_->places()[i];
    Segment& segment = segments_[segment_of(i)];
    entered.clear();
    arguments.clear();
    for (size_t k = 0; k < place.sources.size(); ++k) {
      const size_t slot = place.sources[k];
      // nobody else reads it
      if (slot >= inputs.size() && segment_of(module_->maker_of(slot)) == segment_of(i)) {
        entered.push_back(std::move(values[slot]));
        continue;
      }
      entered.push_back(segment.tape.enter(values[slot], needs_gradient[slot]));
      segment.places.push_back(place.gradient_places[k]);
    }
    for (const size_t k : place.arguments) arguments.push_back(entered[k]);
    for (const size_t slot : place.frees) values[slot].reset();
    if (before_layer) before_layer(i);
    Tensors outputs = module_->forward_layer(i, weights, buffers, arguments, context);
    const size_t first = module_->weight_offsets()[i];
    const size_t last = module_->weight_offsets()[i + 1];
    segment.tape.use(weights.subspan(first, last - first));
    for (size_t w = first; w < last; ++w) segment.weights.push_back(w);
    const bool ends = segment_of(i) == i;
    if (ends) segment.tape.leave(outputs);
    for (size_t o = 0; o < outputs.size(); ++o) {
      needs_gradient[place.first_output + o] = outputs[o].requires_grad();
      values[place.first_output + o] = ends ? outputs[o].variable_data() : std::move(outputs[o]);
    }
  }
  if (!module_->model_outputs().empty())
    output_needs_gradient_ = needs_gradient[module_->loss_place().slot];
  return module_->outputs_of(values);
}

model::LossResult StageTape::loss(const model::Loss& loss, at::Tensor output,
                                  const at::Tensor& targets, const model::MiniBatchSize& mini_batch,
                                  double scale) {
  return loss_tape_.forward(loss, std::move(output), output_needs_gradient_, targets, mini_batch,
                            scale);
}

template <class Run>
void StageTape::for_each_segment(ValueGradients& values, Run&& run, const Made& made) {
  const at::NoGradGuard no_grad;
  if (loss_tape_.is_open()) values.add(module_->loss_place(), loss_tape_.backward());
  weights_.resize(module_->weight_offsets().back());
  for (size_t i = segments_.size(); i-- > 0;) {
    if (segment_of(i) != i) continue;
    const LayerPlace& place = module_->places()[i];
    Tensors outputs;
    for (size_t o = 0; o < place.num_outputs; ++o)
      outputs.push_back(values.take(place.first_output + o));
    Segment& segment = segments_[i];
    LayerTape::Gradients gradients = run(segment.tape, std::move(outputs));
    for (size_t k = 0; k < gradients.inputs.size(); ++k)
      values.add(segment.places[k], std::move(gradients.inputs[k]));
    keep(segment, std::move(gradients.weights));
    if (made) made(segment.weights, weights_);
  }
}

void StageTape::keep(const Segment& segment, Tensors gradients) {
  for (size_t w = 0; w < gradients.size(); ++w) {
    if (!gradients[w].defined()) continue;
    at::Tensor& gradient = weights_[segment.weights[w]];
    gradient = model::in_order(model::as_float32(std::move(gradients[w])));
    if (loss_scale_ != 1) gradient = gradient * (1 / loss_scale_);
  }
}

Tensors StageTape::backward(ValueGradients& values, const Made& made) {
  for_each_segment(
      values, [](LayerTape& tape, Tensors outputs) { return tape.backward(std::move(outputs)); },
      made);
  segments_.clear();
  return std::move(weights_);
}

void StageTape::backward_inputs(ValueGradients& values) {
  for_each_segment(values, [](LayerTape& tape, Tensors outputs) {
    return tape.backward_inputs(std::move(outputs));
  });
}

Tensors StageTape::backward_weights(const Made& made) {
  const at::NoGradGuard no_grad;
  for (size_t i = segments_.size(); i-- > 0;) {
    keep(segments_[i], segments_[i].tape.backward_weights());
    if (made) made(segments_[i].weights, weights_);
  }
  segments_.clear();
  return std::move(weights_);
}

}  // namespace penstock::runtime
