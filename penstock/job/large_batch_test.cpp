#include "penstock/job/large_batch.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "penstock/job/chosen_model.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/train/learning_rate.h"
#include "penstock/util/error.h"

namespace penstock::job {
namespace {

using ::testing::HasSubstr;

options::TrainRequest large_request(const std::string& model, const std::string& rules) {
  options::TrainRequest request;
  request.model = {.name = model, .width = model == "resnet18" ? 4 : 0};
  if (model == "resnet18") request.model.input = "1x28x28";
  request.rates.base = 0.1;
  request.run.batch_size = 512;
  request.large_batch.rules = options::parse_large_batch(rules);
  request.optimizer.weight_decay = 1e-4;
  return request;
}

std::map<std::string, LargeBatchNote> by_rule(const std::vector<LargeBatchNote>& notes) {
  std::map<std::string, LargeBatchNote> found;
  for (const LargeBatchNote& note : notes) found[note.rule] = note;
  return found;
}

TEST(LargeBatch, AllRulesAreSetAndSaid) {
  options::TrainRequest request = large_request("resnet18", "all");
  model::Model model = chosen_model(request.model);
  const auto notes = by_rule(set_large_batch(request, model, /*training_samples=*/6000));
  ASSERT_EQ(notes.size(), 6);
  for (const auto& [rule, note] : notes) EXPECT_TRUE(note.is_set) << rule << ": " << note.text;
  EXPECT_THAT(notes.at("scale").text, HasSubstr("0.1 times 8"));
  EXPECT_THAT(notes.at("statistics").text, HasSubstr("of 64 samples"));
  EXPECT_THAT(notes.at("gamma").text, HasSubstr("8 norms"));
  // 12 steps an epoch; the rate grows by one step's share in each.
  EXPECT_DOUBLE_EQ(train::learning_rate(request.rates, 0, 1000), 0.1);
  EXPECT_DOUBLE_EQ(train::learning_rate(request.rates, 30, 1000), 0.45);
  EXPECT_DOUBLE_EQ(train::learning_rate(request.rates, 60, 1000), 0.8);
  EXPECT_EQ(request.plan.micro_batches, 8);
}

TEST(LargeBatch, OnlyLastNormsBeginWithZerosNotThoseOfProjections) {
  options::TrainRequest request = large_request("resnet18", "gamma");
  model::Model model = chosen_model(request.model);
  set_large_batch(request, model, 6000);
  for (const auto& [name, is_zero] : std::map<std::string, bool>{{"layer1.0.bn2", true},
                                                                 {"layer2.0.bn2", true},
                                                                 {"layer2.0.bn1", false},
                                                                 {"layer2.0.downsample.1", false},
                                                                 {"bn1", false}}) {
    const model::Tensors weights = model.initial_weights(model.graph().find(name), 1);
    EXPECT_EQ(at::all(weights[0] == 0).item<bool>(), is_zero) << name;
  }
}

TEST(LargeBatch, RulesThatAreLeftOutChangeNothing) {
  options::TrainRequest request = large_request("resnet18", "all,-scale,-statistics,-decay,-gamma");
  model::Model model = chosen_model(request.model);
  const auto notes = by_rule(set_large_batch(request, model, 6000));
  EXPECT_FALSE(notes.at("scale").is_set);
  EXPECT_FALSE(notes.at("warmup").is_set);  // nothing grows
  EXPECT_EQ(train::learning_rate(request.rates, 0, 100), 0.1);
  EXPECT_FALSE(request.plan.micro_batches);
  EXPECT_TRUE(options::optimizer_of(request).decays_vectors);
  const LayerId norm = model.graph().find("layer1.0.bn2");
  EXPECT_TRUE(at::all(model.initial_weights(norm, 1)[0] == 1).item<bool>());
}

TEST(LargeBatch, NormsAndBiasesDoNotDecay) {
  options::TrainRequest request = large_request("resnet18", "decay");
  const model::Model model = chosen_model(request.model);
  const model::ParameterOptimizers optimizers(model, options::optimizer_of(request));
  const auto decay = [&](const std::string& layer, int parameter) {
    return optimizers.of({model.graph().find(layer), parameter}).spec().weight_decay;
  };
  EXPECT_EQ(decay("conv1", 0), 1e-4);
  EXPECT_EQ(decay("fc", 0), 1e-4);
  EXPECT_EQ(decay("fc", 1), 0);
  EXPECT_EQ(decay("bn1", 0), 0);
}

TEST(LargeBatch, LambScalesWithTheRootAndLarsKeepsItsMomentum) {
  options::TrainRequest request = large_request("mlp", "all");
  request.optimizer = model::usual_spec(model::OptimizerKind::Lamb);
  model::Model model = chosen_model(request.model);
  auto notes = by_rule(set_large_batch(request, model, 6000));
  EXPECT_NEAR(request.rates.scale, std::sqrt(8.0), 1e-12);
  EXPECT_FALSE(notes.at("momentum").is_set);
  EXPECT_FALSE(notes.at("gamma").is_set);
  EXPECT_FALSE(notes.at("statistics").is_set);
  request = large_request("mlp", "all");
  request.optimizer = model::usual_spec(model::OptimizerKind::Lars);
  notes = by_rule(set_large_batch(request, model, 6000));
  EXPECT_EQ(request.rates.scale, 8);
  EXPECT_THAT(notes.at("momentum").text, HasSubstr("lars"));
}

TEST(LargeBatch, NamesOfRulesAreReadAndWritten) {
  EXPECT_EQ(to_string(options::parse_large_batch("")), "all");
  EXPECT_EQ(to_string(options::parse_large_batch("warmup,scale")), "scale,warmup");
  EXPECT_EQ(to_string(options::parse_large_batch("all,-gamma")),
            "scale,warmup,statistics,momentum,decay");
  const std::string none = to_string(
      options::parse_large_batch("all,-scale,-warmup,-statistics,-momentum,-decay,-gamma"));
  EXPECT_EQ(to_string(options::parse_large_batch(none)), none);
  for (const char* text : {"fast", "all,", "scale,,decay", "all,gamma,-", "scale warmup"})
    EXPECT_THROW(options::parse_large_batch(text), ConfigError) << text;
}

}  // namespace
}  // namespace penstock::job
