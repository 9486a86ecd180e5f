#include "penstock/model/profiling/model_part.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "penstock/model/profiling/values.h"

namespace penstock::model::detail {

namespace {

class PartMaker {
 public:
  PartMaker(const Model& model, const std::vector<LayerId>& run,
            const std::vector<LayerId>& stand_in)
      : model_(model),
        run_(run),
        stand_in_(stand_in),
        inputs_(model.inputs()),
        has_gradients_(layers_with_gradients(model)),
        input_needs_gradient_(inputs_.size(), false) {
    for (size_t p = 0; p < run.size(); ++p) place_[run[p]] = LayerId{static_cast<int32_t>(p)};
  }

  ModelPart make() {
    std::vector<graph::LayerNode> nodes;
    std::vector<std::shared_ptr<const Layer>> layers;
    for (const LayerId id : run_) {
      graph::LayerNode node = model_.graph().layer(id);
      node.ties.clear();
      for (graph::ValueRef& input : node.inputs) input = here(input);
      nodes.push_back(std::move(node));
      layers.emplace_back(std::shared_ptr<const Layer>(), &model_.layer(id));
    }
    std::vector<graph::ValueRef> results;
    for (const graph::ValueRef& result : model_.graph().outputs()) {
      if (result.is_model_input() || is_here(result.layer)) results.push_back(here(result));
    }
    const std::vector<graph::ValueRef>& all = model_.graph().outputs();
    const bool makes_first_result =
        !all.empty() && !all.front().is_model_input() && is_here(all.front().layer);
    if (results.empty()) results.push_back({LayerId{static_cast<int32_t>(nodes.size()) - 1}, 0});

    std::vector<Shape> shapes;
    for (const InputSpec& input : inputs_) shapes.push_back(input.shape);
    graph::ModelGraph graph = graph::ModelGraph::build(static_cast<int>(inputs_.size()),
                                                       std::move(nodes), std::move(results));
    std::vector<std::vector<int>> missing = uses_of_outputs(model_.graph());
    const std::vector<std::vector<int>> found = uses_of_outputs(graph);
    std::vector<std::vector<int>> missing_uses;
    for (size_t p = 0; p < run_.size(); ++p) {
      std::vector<int>& uses = missing_uses.emplace_back(missing[run_[p].index()]);
      for (size_t o = 0; o < uses.size(); ++o) uses[o] -= found[p][o];
    }
    Model part(model_.name(), std::move(graph), std::move(layers), std::move(shapes));
    part.set_inputs(inputs_);
    if (model_.takes_channels_last()) part.set_takes_channels_last();
    if (model_.returns_loss() && makes_first_result) part.set_returns_loss();
    if (makes_first_result) part.set_auxiliary_weights(model_.auxiliary_weights());
    return {.whole = &model_,
            .run = run_,
            .model = std::move(part),
            .made_up = made_up_,
            .input_needs_gradient = input_needs_gradient_,
            .missing_uses = std::move(missing_uses),
            .makes_first_result = makes_first_result,
            .makes_only_result = makes_first_result && all.size() == 1};
  }

 private:
  bool is_here(LayerId layer) const { return stand_in_[layer.index()].value >= 0; }

  graph::ValueRef here(const graph::ValueRef& value) {
    if (value.is_model_input()) return value;
    if (is_here(value.layer)) return {place_.at(stand_in_[value.layer.index()]), value.output};
    const auto [place, is_new] = input_of_.emplace(value, static_cast<int>(inputs_.size()));
    if (is_new) {
      made_up_.push_back(value);
      const at::ScalarType type = type_of(model_, value);
      inputs_.push_back({.name = fmt::format("value {}", inputs_.size()),
                         .shape = shape_of(model_, value),
                         .type = type});
      input_needs_gradient_.push_back(has_gradients_[value.layer.index()] &&
                                      at::isFloatingType(type));
    }
    return graph::ValueRef::model_input(place->second);
  }

  const Model& model_;
  const std::vector<LayerId>& run_;
  const std::vector<LayerId>& stand_in_;
  std::map<LayerId, LayerId> place_;
  std::map<graph::ValueRef, int> input_of_;  ///< of values that are made up
  std::vector<graph::ValueRef> made_up_;
  std::vector<InputSpec> inputs_;
  std::vector<bool> has_gradients_;
  std::vector<bool> input_needs_gradient_;
};

}  // namespace

ModelPart part_of(const Model& model, const std::vector<LayerId>& run,
                  const std::vector<LayerId>& stand_in) {
  return PartMaker(model, run, stand_in).make();
}

}  // namespace penstock::model::detail
