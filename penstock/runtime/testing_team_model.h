// A small model of two stages, whole and spread over teams by hand: columns then rows, a buffer on
// the spread features, dropout on equal values.
//
//   const TeamModel net = spread(two_stages(), 2);   // 4 stages of the schedule
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/device/devices.h"
#include "penstock/model/model.h"
#include "penstock/model/team.h"
#include "penstock/model/team_functions.h"

namespace penstock::runtime::testing {

inline constexpr int64_t kOuter = 8;    ///< features between pairs of linear layers
inline constexpr int64_t kHidden = 16;  ///< features inside, which teams spread

/// One input, one output of as many features per sample, or of others.
class SmallLayer : public model::Layer {
 public:
  explicit SmallLayer(int64_t features) : features_(features) {}
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>&) const override {
    return {{features_}};
  }
  bool is_random() const override { return false; }

 protected:
  int64_t features_;
};

class Dense final : public SmallLayer {
 public:
  Dense(int64_t inputs, int64_t outputs, bool bias)
      : SmallLayer(outputs), inputs_(inputs), bias_(bias) {}
  std::string kind() const override { return "dense"; }
  std::vector<model::ParameterSpec> parameters() const override {
    std::vector<model::ParameterSpec> specs{
        {"weight", {features_, inputs_}, model::Init::uniform(0.4)}};
    if (bias_) specs.push_back({"bias", {features_}, model::Init::uniform(0.4)});
    return specs;
  }
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan,
                         model::TensorSpan inputs, const model::ForwardContext&) const override {
    return {at::linear(inputs[0], weights[0], bias_ ? weights[1] : at::Tensor())};
  }

 private:
  int64_t inputs_;
  bool bias_;
};

class Bias final : public SmallLayer {
 public:
  using SmallLayer::SmallLayer;
  std::string kind() const override { return "bias"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"bias", {features_}, model::Init::uniform(0.4)}};
  }
  model::Tensors forward(model::TensorSpan weights, model::MutableTensorSpan,
                         model::TensorSpan inputs, const model::ForwardContext&) const override {
    return {inputs[0] + weights[0]};
  }
};

/// Subtracts a running mean.
class Centre final : public SmallLayer {
 public:
  using SmallLayer::SmallLayer;
  std::string kind() const override { return "centre"; }
  std::vector<model::ParameterSpec> buffers() const override {
    return {{"mean", {features_}, model::Init::constant(0)}};
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan buffers,
                         model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    const at::Tensor result = inputs[0] - buffers[0].to(inputs[0].scalar_type());
    const at::NoGradGuard no_grad;
    if (context.training) buffers[0].mul_(0.9).add_(inputs[0].mean(0), 0.1);
    return {result};
  }
};

class Tanh final : public SmallLayer {
 public:
  using SmallLayer::SmallLayer;
  std::string kind() const override { return "tanh"; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    return {at::tanh(inputs[0])};
  }
};

class Drop final : public SmallLayer {
 public:
  using SmallLayer::SmallLayer;
  std::string kind() const override { return "drop"; }
  bool is_random() const override { return true; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    if (!context.training) return {inputs[0]};
    at::Tensor mask = at::empty_like(inputs[0]);
    mask.bernoulli_(0.8, model::installed_devices().generator(mask.device(), context.seed));
    return {inputs[0] * mask / 0.8};
  }
};

/// The sum over the team: of the values, or of the gradients.
class TeamSum final : public SmallLayer {
 public:
  TeamSum(int64_t features, bool forward) : SmallLayer(features), forward_(forward) {}
  std::string kind() const override { return forward_ ? "sum_forward" : "sum_backward"; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    model::Team& team = *context.team;
    return {forward_ ? model::sum_forward(inputs[0], team) : model::sum_backward(inputs[0], team)};
  }

 private:
  bool forward_;
};

/// fc1 centre tanh1 fc2 drop | fc3 tanh2 fc4. `tied`: fc3's bias is fc1's, fc4's is fc2's.
inline std::shared_ptr<const model::Model> two_stages(bool tied = false) {
  std::vector<graph::LayerNode> nodes;
  std::vector<std::shared_ptr<const model::Layer>> layers;
  const auto add = [&](const std::string& name, std::shared_ptr<const model::Layer> layer) {
    const auto last = static_cast<int32_t>(nodes.size()) - 1;
    nodes.push_back({.name = name, .kind = layer->kind(), .inputs = {{LayerId{last}, 0}}});
    layers.push_back(std::move(layer));
  };
  add("fc1", std::make_shared<Dense>(kOuter, kHidden, true));
  add("centre", std::make_shared<Centre>(kHidden));
  add("tanh1", std::make_shared<Tanh>(kHidden));
  add("fc2", std::make_shared<Dense>(kHidden, kOuter, true));
  add("drop", std::make_shared<Drop>(kOuter));
  add("fc3", std::make_shared<Dense>(kOuter, kHidden, true));
  add("tanh2", std::make_shared<Tanh>(kHidden));
  add("fc4", std::make_shared<Dense>(kHidden, kOuter, true));
  if (tied) {
    nodes[5].ties = {{.parameter = 1, .owner = {LayerId{0}, 1}}};
    nodes[7].ties = {{.parameter = 1, .owner = {LayerId{3}, 1}}};
  }
  return std::make_shared<const model::Model>(
      "two stages", graph::ModelGraph::build(1, std::move(nodes), {{LayerId{7}, 0}}),
      std::move(layers), std::vector<model::Shape>{{kOuter}});
}

inline const std::vector<StageId> kStagesOfTwo{StageId{0}, StageId{0}, StageId{0}, StageId{0},
                                               StageId{0}, StageId{1}, StageId{1}, StageId{1}};

struct TeamModel {
  model::Model model;
  std::vector<StageId> stage_of_layer;
};

/// Puts the layers of one member behind each other.
class MemberLayers {
 public:
  MemberLayers(const model::Model& whole, int team, int member) : whole_(whole) {
    part_.team = team;
    part_.member = member;
    const int64_t more = kHidden % team;
    length_ = kHidden / team + (member < more ? 1 : 0);
    begin_ = kHidden / team * member + std::min<int64_t>(member, more);
  }

  struct Made {
    std::string name;
    std::shared_ptr<const model::Layer> layer;
    model::LayerPart part;
  };

  /// Of the whole model's layer.
  void add(int32_t id, const model::Layer& code) {
    const auto columns = [&](std::vector<int64_t> sizes, size_t number, int64_t dimension) {
      return model::TensorPart{std::move(sizes), number, dimension, runs()};
    };
    if (id == 0 || id == 5) {
      if (part_.team > 1) cross(id, ".in", std::make_shared<TeamSum>(kOuter, false));
      push(id, "", std::make_shared<Dense>(kOuter, length_, true),
           {columns({kHidden, kOuter}, 0, 0), columns({kHidden}, 1, 0)});
    } else if (id == 3 || id == 7) {
      push(id, "", std::make_shared<Dense>(length_, kOuter, false),
           {columns({kOuter, kHidden}, 0, 1)});
      if (part_.team > 1) cross(id, ".sum", std::make_shared<TeamSum>(kOuter, true));
      push(id, ".bias", std::make_shared<Bias>(kOuter), {{.whole = {kOuter}, .number = 1}});
    } else if (id == 1) {
      push(id, "", std::make_shared<Centre>(length_), {}, {columns({kHidden}, 0, 0)});
    } else if (code.kind() == "tanh") {
      push(id, "", std::make_shared<Tanh>(length_));
    } else {
      push(id, "", std::make_shared<Drop>(kOuter));
    }
  }
  std::vector<Made>& made() { return made_; }

 private:
  std::vector<model::TensorPart::Run> runs() const {
    if (part_.team == 1) return {};
    return {{.begin = begin_, .length = length_}};
  }
  std::string name_of(int32_t id, const std::string& suffix) const {
    return fmt::format("{}{}.m{}", whole_.graph().layer(LayerId{id}).name, suffix, part_.member);
  }
  void push(int32_t id, const std::string& suffix, std::shared_ptr<const model::Layer> layer,
            std::vector<model::TensorPart> parameters = {},
            std::vector<model::TensorPart> buffers = {}) {
    model::LayerPart part = part_;
    part.whole = LayerId{id};
    part.parameters = std::move(parameters);
    part.buffers = std::move(buffers);
    made_.push_back({name_of(id, suffix), std::move(layer), std::move(part)});
  }
  void cross(int32_t id, const std::string& suffix, std::shared_ptr<const model::Layer> layer) {
    made_.push_back({name_of(id, suffix), std::move(layer), part_});
  }

  const model::Model& whole_;
  model::LayerPart part_;
  int64_t begin_ = 0;
  int64_t length_ = 0;
  std::vector<Made> made_;
};

/// two_stages() with teams of `size`. `change`: of each layer that is made.
inline TeamModel spread(const std::shared_ptr<const model::Model>& whole, int size,
                        const std::function<void(MemberLayers::Made&)>& change = {}) {
  std::vector<graph::LayerNode> nodes;
  std::vector<std::shared_ptr<const model::Layer>> layers;
  std::vector<model::LayerPart> parts;
  std::vector<StageId> stages;
  // By member, the last layer of the stage before; all members have the same values.
  std::vector<LayerId> before(static_cast<size_t>(size), LayerId{-1});
  int32_t stage = 0;
  for (int s = 0; s < 2; ++s) {
    for (int m = 0; m < size; ++m, ++stage) {
      MemberLayers member(*whole, size, m);
      for (int32_t l = s == 0 ? 0 : 5; l < (s == 0 ? 5 : 8); ++l)
        member.add(l, whole->layer(LayerId{l}));
      LayerId& last = before[static_cast<size_t>(m)];
      for (MemberLayers::Made& made : member.made()) {
        if (change) change(made);
        nodes.push_back({.name = made.name, .kind = made.layer->kind(), .inputs = {{last, 0}}});
        last = LayerId{static_cast<int32_t>(nodes.size()) - 1};
        layers.push_back(made.layer);
        parts.push_back(made.part);
        stages.push_back(StageId{stage});
      }
    }
  }
  const auto find = [&](const std::string& name) {
    for (size_t l = 0; l < nodes.size(); ++l) {
      if (nodes[l].name == name) return LayerId{static_cast<int32_t>(l)};
    }
    return LayerId{-1};
  };
  if (!whole->graph().layer(LayerId{7}).ties.empty()) {
    for (int m = 0; m < size; ++m) {
      nodes[find(fmt::format("fc3.m{}", m)).index()].ties = {
          {.parameter = 1, .owner = {find(fmt::format("fc1.m{}", m)), 1}}};
      nodes[find(fmt::format("fc4.bias.m{}", m)).index()].ties = {
          {.parameter = 0, .owner = {find(fmt::format("fc2.bias.m{}", m)), 0}}};
    }
  }
  std::vector<graph::ValueRef> outputs;
  for (const LayerId last : before) outputs.push_back({last, 0});
  model::Model model("spread", graph::ModelGraph::build(1, std::move(nodes), std::move(outputs)),
                     std::move(layers), {{kOuter}});
  model.set_parts(whole, std::move(parts));
  return {std::move(model), std::move(stages)};
}

}  // namespace penstock::runtime::testing
