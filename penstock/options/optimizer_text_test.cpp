#include "penstock/options/optimizer_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/options/rows.h"
#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using model::OptimizerKind;
using model::OptimizerSpec;
using ::testing::HasSubstr;

OptimizerSpec set(const std::string& text, OptimizerSpec spec = {}) {
  set_optimizer(spec, text);
  return spec;
}

std::string refusal(const std::string& text) {
  try {
    set(text);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(OptimizerText, AnotherOptimiserHasItsUsualParameters) {
  const OptimizerSpec muon = set("muon");
  EXPECT_EQ(muon.kind, OptimizerKind::Muon);
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_TRUE(muon.nesterov);
  EXPECT_EQ(set("rmsprop").momentum, 0);
  EXPECT_EQ(set("lion").beta2, 0.99);
  EXPECT_EQ(set("adagrad").epsilon, 1e-10);
}

/// A stream's SGD has no momentum, and a weight decay is no optimiser's own.
TEST(OptimizerText, TheSameOptimiserKeepsWhatItHas) {
  EXPECT_EQ(set("sgd", {.momentum = 0}).momentum, 0);
  EXPECT_EQ(set("adam", {.momentum = 0}).momentum, 0);
  EXPECT_EQ(set("adam", {.weight_decay = 0.1}).weight_decay, 0.1);
}

TEST(OptimizerText, SetsParametersAndFlags) {
  const OptimizerSpec adam = set("adam,beta2=0.5,amsgrad,maximize=yes");
  EXPECT_EQ(adam.beta2, 0.5);
  EXPECT_TRUE(adam.amsgrad);
  EXPECT_TRUE(adam.maximize);
  EXPECT_FALSE(set("muon,nesterov=no").nesterov);
  EXPECT_EQ(set("rmsprop,alpha=0.9,centered,momentum=0.5").momentum, 0.5);
}

TEST(OptimizerText, ReadsBack) {
  for (const model::OptimizerTraits& row : model::kOptimizers)
    EXPECT_EQ(optimizer_text(set(std::string(row.name))), row.name);
  for (const std::string text :
       {"adam,beta1=0.8,epsilon=1e-06,amsgrad", "asgd,lambda=0.1,average_from=10,maximize",
        "adafactor,clip=2,decay_power=0.5", "nadamw,momentum_decay=0.01",
        "muon,iterations=3,match_rms"})
    EXPECT_EQ(optimizer_text(set(text)), text);
  EXPECT_EQ(optimizer_text(set("sgd,momentum=0.5,nesterov")), "sgd") << "options of their own";
}

TEST(OptimizerText, SaysWhatDoesNotFit) {
  EXPECT_THAT(refusal("lyon"), HasSubstr("unknown optimiser 'lyon', expected sgd, adam"));
  EXPECT_THAT(refusal("adam,alpha=0.5"),
              HasSubstr("the optimiser adam has no 'alpha'; it has beta1, beta2, epsilon, amsgrad, "
                        "maximize"));
  EXPECT_THAT(refusal("adam,beta2"), HasSubstr("expected a number after '=', found 'beta2'"));
  EXPECT_THAT(refusal("adam,beta2=1"), HasSubstr("beta2 must be at least 0 and below 1, found 1"));
  EXPECT_THAT(refusal("adam,beta2=nan"), HasSubstr("expected a number after '='"));
  EXPECT_THAT(refusal("adam,amsgrad=maybe"), HasSubstr("expected amsgrad, amsgrad=yes or"));
}

/// Momentum is its own option, and comes behind the optimiser, whose usual one it replaces.
TEST(OptimizerText, StandsBeforeTheOptionsThatChangeIt) {
  const auto place = [](std::string_view name) {
    const auto rows = train_rows();
    return std::find_if(rows.begin(), rows.end(),
                        [&](const Row& row) { return row.name == name; }) -
           rows.begin();
  };
  EXPECT_LT(place("--optimizer"), place("--momentum"));
  EXPECT_LT(place("--optimizer"), place("--nesterov"));
}

}  // namespace
}  // namespace penstock::options
