#include "penstock/runtime/stage_graphs.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/util/check.h"

namespace penstock::runtime {

using model::copies_of;
using model::copy_all;

namespace {

/// Passes that are made without graphs.
constexpr int kFirstPasses = 2;

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() ||
         (a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device());
}

/// Copies into the tensors of a graph, which are made where there are none.
void place(Tensors& here, TensorSpan values) {
  if (here.empty()) {
    here = copies_of(values);
    return;
  }
  for (size_t i = 0; i < here.size(); ++i) PENSTOCK_CHECK(same_layout(here[i], values[i]), i);
  copy_all(here, values);
}

}  // namespace

bool StageGraph::fits(TensorSpan weights, TensorSpan inputs) const {
  return std::equal(weights.begin(), weights.end(), weights_.begin(), weights_.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); }) &&
         std::equal(inputs.begin(), inputs.end(), inputs_.begin(), inputs_.end(), same_layout);
}

void StageGraph::prepare_forward(TensorSpan weights, TensorSpan inputs,
                                 const model::ForwardContext& context) {
  place(inputs_, inputs);
  if (!forward_) record_forward(weights, context);
}

const Tensors& StageGraph::forward() {
  forward_->launch();
  return outputs_;
}

void StageGraph::record_forward(TensorSpan weights, const model::ForwardContext& context) {
  weights_.assign(weights.begin(), weights.end());
  buffers_before_ = copies_of(buffers_);
  memory_ = stream_.graph_memory();
  forward_ = stream_.capture(
      memory_,
      [this, context] {
        // As without a graph, B reads the buffers that its F has made, whatever later ones make.
        Tensors buffers = copies_of(buffers_);
        tape_.emplace(module_, ends_);
        Tensors outputs = tape_->forward(weights_, buffers, inputs_, context);
        copy_all(buffers_, buffers);
        return outputs;
      },
      outputs_);
  output_needs_gradient_ = tape_->output_needs_gradient();
}

void StageGraph::prepare_backward(const ByStage& received, const at::Tensor& loss_gradient) {
  for (const auto& [from, parts] : received) place(received_[from], parts);
  if (loss_gradient.defined()) {
    if (!loss_gradient_.defined()) loss_gradient_ = at::empty_like(loss_gradient);
    copy_all({&loss_gradient_, 1}, {&loss_gradient, 1});
  }
  if (!backward_) record_backward();
}

const StageGraph::Made& StageGraph::backward() {
  backward_->launch();
  return made_;
}

void StageGraph::record_backward() {
  Tensors all;
  backward_ = stream_.capture(
      memory_,
      [this] {
        const at::NoGradGuard no_grad;
        ValueGradients values(module_);
        for (const auto& [from, parts] : received_) values.receive(from, parts);
        if (loss_gradient_.defined()) values.add(module_.loss_place(), loss_gradient_);
        Tensors made = tape_->backward(values);
        for (const StageId to : module_.source_stages()) {
          const Tensors parts = values.message(to);
          made.insert(made.end(), parts.begin(), parts.end());
        }
        return made;
      },
      all);
  auto next = all.begin() + static_cast<std::ptrdiff_t>(module_.weight_offsets().back());
  made_.weights.assign(all.begin(), next);
  for (const StageId to : module_.source_stages()) {
    size_t parts = 0;
    for (const size_t i : module_.inputs_from(to)) parts += module_.parts_sent(i).size();
    made_.messages[to].assign(next, next + static_cast<std::ptrdiff_t>(parts));
    next += static_cast<std::ptrdiff_t>(parts);
  }
  buffers_before_.clear();
}

StageGraphs::StageGraphs(const StageModule& module, model::DeviceStream& stream)
    : module_(module), stream_(stream) {
  if (!stream.graph_memory()) obstacle_ = "its device has none";
}

StageGraph* StageGraphs::take(TensorSpan weights, TensorSpan inputs, const SegmentEnds& ends,
                              Tensors& buffers) {
  if (!obstacle_.empty() || ++passes_ <= kFirstPasses) return nullptr;
  if (free_.empty()) {
    if (!graphs_.empty() && !graphs_.front()->fits(weights, inputs)) return nullptr;
    if (graphs_.empty()) buffers_ = copies_of(buffers);
    free_.push_back(
        graphs_.emplace_back(std::make_unique<StageGraph>(module_, ends, stream_, buffers_)).get());
  } else if (!free_.back()->fits(weights, inputs)) {
    return nullptr;
  }
  // Passes without graphs, and whoever loads a checkpoint, may have put others in their place.
  for (size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].is_same(buffers_[b])) continue;
    copy_all({&buffers_[b], 1}, {&buffers[b], 1});
    buffers[b] = buffers_[b];
  }
  StageGraph* const graph = free_.back();
  free_.pop_back();
  return graph;
}

void StageGraphs::give_back(StageGraph& graph) {
  if (obstacle_.empty())
    free_.push_back(&graph);
  else
    std::erase_if(graphs_, [&](const auto& one) { return one.get() == &graph; });
}

void StageGraphs::refuse(std::string why) {
  obstacle_ = std::move(why);
  for (const StageGraph* const graph : std::exchange(free_, {}))
    std::erase_if(graphs_, [&](const auto& one) { return one.get() == graph; });
}

void StageGraphs::begin_run() {
  std::erase_if(graphs_, [](const auto& graph) { return !graph->is_complete(); });
  free_.clear();
  for (const auto& graph : graphs_) free_.push_back(graph.get());
}

}  // namespace penstock::runtime
