#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "penstock/model/device/copies.h"
#include "penstock/model/profiling/model_pass.h"
#include "penstock/util/error.h"

namespace penstock::model::detail {

namespace {

/// What an event takes in a graph: the median of the times between neighbours.
int64_t measure_event(DeviceStream& stream) {
  constexpr size_t kEvents = 65;
  std::vector<EventPtr> events;
  Tensors none;
  const std::unique_ptr<DeviceGraph> graph = stream.capture(
      stream.graph_memory(),
      [&] {
        for (size_t i = 0; i < kEvents; ++i) events.push_back(stream.record(/*timed=*/true));
        return Tensors{};
      },
      none);
  for (int launches = 0; launches < 2; ++launches) graph->launch();
  stream.synchronize();
  std::vector<int64_t> times;
  for (size_t i = 1; i < kEvents; ++i) times.push_back(events[i]->ns_since(*events[i - 1]));
  std::nth_element(times.begin(), times.begin() + kEvents / 2, times.end());
  return times[kEvents / 2];
}

}  // namespace

void ModelPass::record_graphs() {
  for (int i = 0; i < model_.graph().num_layers(); ++i) {
    if (!model_.layer(LayerId{i}).is_random()) continue;
    graph_obstacle_ =
        fmt::format("layer '{}' takes random numbers", model_.graph().layer(LayerId{i}).name);
    return;
  }
  auto graphs = std::make_unique<Graphs>(*stream_, layers_.size());
  graphs->memory = stream_->graph_memory();
  if (!graphs->memory) {
    graph_obstacle_ = "the device has none";
    return;
  }
  const std::vector<graph::ValueRef>& results = model_.graph().outputs();
  Tensors none;
  std::vector<LayerTimes> unused(layers_.size());  // laps refer to it
  try {
    graphs->event_ns = measure_event(*stream_);
    layer_laps_ = &graphs->laps;
    graphs->forward = stream_->capture(
        graphs->memory,
        [&] {
          forward_all(graphs->times);
          return Tensors{};
        },
        none);
    graphs->forward->launch();
    loss(unused);
    graphs->outputs.resize(layers_.size());
    for (const graph::ValueRef& result : results) {
      Tensors& gradients = graphs->output_gradients.emplace_back();
      if (result.is_model_input()) continue;
      LayerState& state = layers_[result.layer.index()];
      graphs->outputs[result.layer.index()] = state.outputs;
      Tensors& made = state.output_gradients[static_cast<size_t>(result.output)];
      gradients = copies_of(made);
      made = gradients;
    }
    graphs->backward = stream_->capture(
        graphs->memory,
        [&] {
          backward_all(Backward::Whole, graphs->times);
          return Tensors{};
        },
        none);
    for (LayerState& state : layers_)
      graphs->weight_gradients.push_back(std::exchange(state.weight_gradients, {}));
    laps_.read();
    graphs_ = std::move(graphs);
  } catch (const InternalError&) {
    throw;
  } catch (const c10::Error& error) {
    graph_obstacle_ = error.what_without_backtrace();
  } catch (const RuntimeError& error) {
    graph_obstacle_ = error.what();
  }
  layer_laps_ = &laps_;
  if (graphs_) return;
  check_stop();
  laps_.read();
  for (LayerState& state : layers_) {
    state.inputs.clear();
    state.outputs.clear();
    state.output_gradients.clear();
    state.weight_gradients.clear();
  }
}

void ModelPass::launch_graphs(std::vector<LayerTimes>& times) {
  check_stop();
  graphs_->forward->launch();
  const std::vector<graph::ValueRef>& results = model_.graph().outputs();
  for (const graph::ValueRef& result : results) {
    if (result.is_model_input()) continue;
    LayerState& state = layers_[result.layer.index()];
    state.outputs = graphs_->outputs[result.layer.index()];
    state.output_gradients.assign(state.outputs.size(), {});
  }
  loss(times);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].is_model_input()) continue;
    LayerState& state = layers_[results[i].layer.index()];
    copy_all(graphs_->output_gradients[i],
             state.output_gradients[static_cast<size_t>(results[i].output)]);
  }
  for (const graph::ValueRef& result : results) {
    if (result.is_model_input()) continue;
    layers_[result.layer.index()].outputs.clear();
    layers_[result.layer.index()].output_gradients.clear();
  }
  graphs_->backward->launch();
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].weight_gradients = graphs_->weight_gradients[i];
}

void ModelPass::read_graphs(std::vector<LayerTimes>& times) {
  std::fill(graphs_->times.begin(), graphs_->times.end(), LayerTimes{});
  graphs_->laps.read_launch(graphs_->event_ns);
  for (size_t i = 0; i < times.size(); ++i) {
    times[i].forward_ns += graphs_->times[i].forward_ns;
    times[i].backward_ns += graphs_->times[i].backward_ns;
  }
}

}  // namespace penstock::model::detail
