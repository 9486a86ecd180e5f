#include "penstock/train/decode.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "penstock/model/builder.h"
#include "penstock/model/sequence_builder.h"
#include "penstock/plan/strategy.h"
#include "penstock/train/data/pair_dataset.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/error.h"

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

constexpr int64_t kWords = 6;
constexpr int64_t kMostWords = 3;
constexpr int64_t kSourcePlaces = 4;
constexpr uint64_t kInitialSeed = 7;

/// Small, with large weights, so that its attention sees some words and not others.
model::Model attending_model() {
  using model::Init;
  model::SequenceBuilder net("attending");
  const model::Value source = net.tokens("source", {kSourcePlaces}, kWords);
  const model::Value target = net.tokens("target", {kMostWords}, kWords);
  const auto table = [&](const model::Value& tokens, const char* name) {
    return net.embedding(tokens, {.values = kWords, .features = 4, .name = name});
  };
  const model::Value keys = table(source, "keys");
  const model::Value queries =
      net.lstm(table(target, "words"),
               {.features = 4, .name = "decoder", .weight_init = Init::uniform(1.5)});
  const model::Value asked =
      net.linear(queries, {.features = 4, .name = "asked", .weight_init = Init::uniform(4)});
  const model::Value answer = net.additive_attention(
      {.query = asked, .key = keys, .value = keys, .tokens = source}, "attention");
  const model::Value both = net.concat_features({queries, answer}, "both");
  return net.build(
      net.linear(both, {.features = kWords, .name = "out", .weight_init = Init::uniform(1)}));
}

/// What every layer makes of the model's inputs, by layer.
std::vector<model::Tensors> all_outputs(const model::Model& model, const model::Tensors& inputs,
                                        std::vector<model::Tensors>& arguments) {
  std::vector<model::Tensors> made;
  const graph::ModelGraph& graph = model.graph();
  for (int32_t l = 0; l < graph.num_layers(); ++l) {
    model::Tensors& own = arguments.emplace_back();
    for (const graph::ValueRef& input : graph.layer(LayerId{l}).inputs) {
      own.push_back(input.is_model_input()
                        ? inputs[static_cast<size_t>(input.output)]
                        : made[input.layer.index()][static_cast<size_t>(input.output)]);
    }
    const model::Tensors weights = model.initial_weights(LayerId{l}, kInitialSeed);
    made.push_back(model.layer(LayerId{l}).forward(weights, {}, own, {.training = false}));
  }
  return made;
}

/// Equation 14 of Wu et al. 2016 for every sentence of up to kMostWords words; the best one.
Tokens best_of_all(const model::Model& model, const Dataset& data, int64_t sample,
                   const BeamPenalties& penalties) {
  std::vector<Tokens> full = {{}};
  for (int64_t place = 0; place < kMostWords; ++place) {
    std::vector<Tokens> longer;
    for (const Tokens& tokens : full) {
      for (int64_t word = 0; word < kWords; ++word) {
        longer.push_back(tokens);
        longer.back().push_back(word);
      }
    }
    full = longer;
  }
  const auto rows = static_cast<int64_t>(full.size());
  const model::Tensors inputs =
      data.inputs_with_targets(std::vector<int64_t>(full.size(), sample), full);
  std::vector<model::Tensors> read;
  const auto made = all_outputs(model, inputs, read);
  const LayerId attention = model.graph().find("attention");
  const model::Tensors weights = model.initial_weights(attention, kInitialSeed);
  const model::Tensors& asked = read[attention.index()];
  const at::Tensor direction = weights[0] / weights[0].norm() * weights[2];
  const at::Tensor scores =
      at::tanh((asked[0] + weights[1]).unsqueeze(2) + asked[1].unsqueeze(1)).matmul(direction);
  const at::Tensor likelihood = at::log_softmax(made.back()[0], -1);
  Tokens best;
  double best_score = -1e9;
  for (int64_t row = 0; row < rows; ++row) {
    // The source's tokens are followed by its end.
    const int64_t words = (asked[3][row] != kSpecial.pad).sum().item<int64_t>();
    const at::Tensor shares = at::softmax(scores[row].narrow(1, 0, words), 1);
    double so_far = 0;
    const Tokens& tokens = full[static_cast<size_t>(row)];
    for (int64_t place = 0; place < kMostWords; ++place) {
      const int64_t word = tokens[static_cast<size_t>(place)];
      so_far += likelihood[row][place][word].item<double>();
      const bool ends = word == kSpecial.end;
      if (!ends && place + 1 < kMostWords) continue;
      const Tokens sentence(tokens.begin(), tokens.begin() + place + (ends ? 0 : 1));
      const double covered =
          at::log(shares.narrow(0, 0, place + 1).sum(0).clamp_max(1)).sum().item<double>();
      const double score = so_far / std::pow((5.0 + static_cast<double>(sentence.size()) + 1) / 6,
                                             penalties.length) +
                           penalties.coverage * covered;
      if (score > best_score) {
        best_score = score;
        best = sentence;
      }
      break;
    }
  }
  return best;
}

TEST(Decode, AWideBeamFindsTheBestSentenceByLengthAndCoverageUnderEveryPlan) {
  const model::Model model = attending_model();
  const std::vector<Tokens> sources = {{4, 5, 1}, {1}, {5, 5}, {4, 1, 5}};
  const PairDataset data("pairs", samples_for(model, {}), sentences(sources),
                         sentences(std::vector<Tokens>(sources.size(), Tokens{4})), kSpecial, -100);
  const std::unique_ptr<model::Optimizer> optimizer = model::make_optimizer({});
  const int layers = model.graph().num_layers();
  for (const auto& [stages, replicas] : {std::pair(1, 1), std::pair(3, 1), std::pair(1, 2)}) {
    plan::Plan plan = plan_of(stages, replicas);
    for (plan::Stage& stage : plan.stages) stage.layers.clear();
    // The attention lies in the middle one of three stages.
    for (int l = 0; l < layers; ++l) {
      const int stage = stages == 1 || l < 2 ? 0 : l + 1 < layers ? 1 : 2;
      plan.stages[static_cast<size_t>(stage)].layers.push_back(
          model.graph().layer(LayerId{l}).name);
    }
    runtime::Pipeline pipeline(model, plan::stage_of_layer(plan, model.graph()), plan.replicas(),
                               *optimizer, {.seed = kInitialSeed});
    std::vector<Tokens> by_likelihood;
    for (const double coverage : {0.0, 0.2, 2.0}) {
      const BeamPenalties penalties{.length = 0.6, .coverage = coverage};
      const auto written = decode(pipeline, plan, data,
                                  {.end = kSpecial.end,
                                   .most_tokens = kMostWords,
                                   .beam = 1000,
                                   .penalties = penalties,
                                   .attending = attending_layer(model),
                                   .batch = 5,
                                   .run_options = [](const schedule::Schedule& schedule) {
                                     runtime::RunOptions run;
                                     run.credits = check_schedule(schedule);
                                     return run;
                                   }});
      ASSERT_TRUE(written.has_value());
      for (size_t sample = 0; sample < sources.size(); ++sample) {
        EXPECT_EQ((*written)[sample],
                  best_of_all(model, data, static_cast<int64_t>(sample), penalties))
            << stages << " stages, " << replicas << " replicas, sample " << sample;
      }
      if (coverage == 0) by_likelihood = *written;
      if (coverage == 2) {
        EXPECT_NE(*written, by_likelihood);
      }
    }
  }
}

TEST(Coverage, CountsEachWordOfTheSourceOnce) {
  // Two samples, two places of the target, three of the source, the last of which is padding in the
  // second sample.
  const at::Tensor shares =
      at::tensor({0.5, 0.25, 0.25, 0.75, 0.25, 0.0, 0.5, 0.5, 0.0, 1.0, 0.0, 0.0}).view({2, 2, 3});
  const at::Tensor lengths = at::tensor({3, 2}, at::kLong).view({2, 1});
  const std::vector<double> first = coverage({shares, lengths}, 0);
  EXPECT_NEAR(first[0], std::log(0.5 * 0.25 * 0.25), 1e-6);
  EXPECT_NEAR(first[1], std::log(0.5 * 0.5), 1e-6);
  const std::vector<double> both = coverage({shares, lengths}, 1);
  EXPECT_NEAR(both[0], std::log(1 * 0.5 * 0.25), 1e-6);
  EXPECT_NEAR(both[1], std::log(1 * 0.5), 1e-6);
}

TEST(Coverage, AWordThatNobodySawIsBadButComparable) {
  const at::Tensor shares = at::tensor({1.0, 0.0}).view({1, 1, 2});
  const double value = coverage({shares, at::full({1, 1}, 2, at::kLong)}, 0).front();
  EXPECT_LT(value, -80);
  EXPECT_TRUE(std::isfinite(value));
}

TEST(Coverage, NeedsOneLayerThatAttends) {
  EXPECT_EQ(attending_layer(attending_model()).layer, attending_model().graph().find("attention"));
  try {
    attending_layer(adding_model());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the model 'adding' has none"));
  }
}

}  // namespace
}  // namespace penstock::train
