#include "penstock/train/decode.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "penstock/model/builder.h"
#include "penstock/plan/strategy.h"
#include "penstock/train/data/pair_dataset.h"
#include "penstock/train/training_schedule.h"

namespace penstock::train {
namespace {

constexpr int64_t kTokens = 11;
constexpr int64_t kPlaces = 6;
constexpr SpecialTokens kSpecial = {.pad = 0, .begin = 2, .end = 3};

/// The next token at a place: the source's there plus the target's before it.
int64_t next_token(int64_t source, int64_t before) { return (source + before) % kTokens; }

class Adds : public model::Layer {
 public:
  std::string kind() const override { return "adds"; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    return {(inputs[0] + inputs[1]).to(at::kFloat)};
  }
};

/// Logits [batch, places, tokens] that are far larger at the number of each place.
class Points : public model::Layer {
 public:
  std::string kind() const override { return "points"; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext&) const override {
    const at::Tensor next = inputs[0].to(at::kLong).remainder(kTokens);
    return {at::one_hot(next, kTokens).to(at::kFloat) * 40};
  }
};

model::Model adding_model() {
  model::ModelBuilder net("adding");
  const std::vector<model::Value> inputs = {net.input({kPlaces}), net.input({kPlaces})};
  const model::Value sum = net.apply(std::make_shared<Adds>(), inputs, "adds").front();
  model::Model model = net.build(net.apply(std::make_shared<Points>(), {sum}, "points"));
  model.set_inputs({{.name = "source", .shape = {kPlaces}, .type = at::kLong},
                    {.name = "target", .shape = {kPlaces}, .type = at::kLong}});
  return model;
}

Sentences sentences(const std::vector<Tokens>& rows) {
  Sentences result{.tokens = {}, .offsets = {0}};
  Tokens all;
  for (const Tokens& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
    result.offsets.push_back(std::ssize(all));
  }
  result.tokens = StoredArray(at::tensor(all));
  return result;
}

/// What the model writes for a source, by itself.
Tokens expected(const Tokens& source) {
  Tokens written;
  int64_t before = kSpecial.begin;
  for (size_t place = 0; place < kPlaces; ++place) {
    const int64_t here = place < source.size()    ? source[place]
                         : place == source.size() ? kSpecial.end
                                                  : kSpecial.pad;
    const int64_t next = next_token(here, before);
    if (next == kSpecial.end) break;
    written.push_back(next);
    before = next;
  }
  return written;
}

plan::Plan plan_of(int stages, int replicas) {
  plan::Plan plan;
  plan.strategy = plan::parse_scheduled_strategy(stages == 1 && replicas == 1 ? "serial"
                                                 : stages == 1                ? "dp"
                                                                              : "1f1b-flush");
  plan.weights = plan::default_policy(plan.strategy);
  plan.micro_batches = replicas;
  plan.stages.resize(static_cast<size_t>(stages));
  plan.stages.front().layers.push_back("adds");
  plan.stages.back().layers.push_back("points");
  for (auto& stage : plan.stages) stage.replicas = replicas;
  return plan;
}

TEST(Decode, EveryPlanWritesWhatTheModelFindsLikeliest) {
  const std::vector<Tokens> sources = {{4, 5, 6}, {1}, {7, 7, 7, 7, 7}, {9, 4}, {1, 1, 1}};
  const std::vector<Tokens> targets(sources.size(), Tokens{4});
  const model::Model model = adding_model();
  const PairDataset data("pairs", samples_for(model, {}), sentences(sources), sentences(targets),
                         kSpecial, -100);
  std::vector<Tokens> wanted;
  for (const Tokens& source : sources) wanted.push_back(expected(source));
  ASSERT_TRUE(wanted[1].empty()) << "one that ends at once";
  ASSERT_EQ(wanted[0].size(), size_t{kPlaces}) << "one that does not end";
  const std::unique_ptr<model::Optimizer> optimizer = model::make_optimizer({});
  for (const auto& [stages, replicas] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
    const plan::Plan plan = plan_of(stages, replicas);
    runtime::Pipeline pipeline(model, plan::stage_of_layer(plan, model.graph()), plan.replicas(),
                               *optimizer, {});
    for (const int64_t beam : {1, 3}) {
      const auto written = decode(pipeline, plan, data,
                                  {.end = kSpecial.end,
                                   .most_tokens = kPlaces,
                                   .beam = beam,
                                   .batch = 2,
                                   .run_options = [](const schedule::Schedule& schedule) {
                                     runtime::RunOptions run;
                                     run.credits = check_schedule(schedule);
                                     return run;
                                   }});
      ASSERT_TRUE(written.has_value());
      EXPECT_EQ(*written, wanted) << stages << " stages, " << replicas << " replicas, " << beam;
    }
  }
}

}  // namespace
}  // namespace penstock::train
