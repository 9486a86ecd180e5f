#include "penstock/train/rate_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "penstock/train/learning_rate.h"
#include "penstock/util/error.h"

namespace penstock::train {
namespace {

using ::testing::HasSubstr;

constexpr double kBase = 0.3;
constexpr int64_t kSteps = 300;
constexpr std::array<int64_t, 12> kSome = {0, 1, 2, 5, 7, 10, 30, 60, 100, 150, 233, 299};

struct Known {
  std::string schedule;
  std::array<double, kSome.size()> rates;
};

/// What PyTorch 2.13 prints (python/tests/rate_schedules.py); python/tests/test_optimizer.py
/// compares every step.
const Known kKnown[] = {
    {"StepLR,step_size=7,gamma=0.9",
     {0.3, 0.3, 0.3, 0.3, 0.27, 0.27, 0.19683000000000003, 0.12914016300000003, 0.06863037736488302,
      0.032825696739453715, 0.009270946314789788, 0.003591754554768609}},
    {"MultiStepLR,milestones=2:60:60:150,gamma=0.5",
     {0.3, 0.3, 0.15, 0.15, 0.15, 0.15, 0.15, 0.0375, 0.0375, 0.01875, 0.01875, 0.01875}},
    {"ConstantLR,factor=0.25,total_iters=60",
     {0.075, 0.075, 0.075, 0.075, 0.075, 0.075, 0.075, 0.3, 0.3, 0.3, 0.3, 0.3}},
    {"ConstantLR",
     {0.09999999999999999, 0.09999999999999999, 0.09999999999999999, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3,
      0.3, 0.3, 0.3}},
    {"LinearLR,start_factor=0.1,end_factor=0.8,total_iters=100",
     {0.03, 0.032100000000000004, 0.0342, 0.040499999999999994, 0.04469999999999999, 0.051,
      0.09299999999999994, 0.15599999999999983, 0.23999999999999985, 0.23999999999999985,
      0.23999999999999985, 0.23999999999999985}},
    {"LinearLR",
     {0.09999999999999999, 0.14, 0.18000000000000002, 0.30000000000000004, 0.30000000000000004,
      0.30000000000000004, 0.30000000000000004, 0.30000000000000004, 0.30000000000000004,
      0.30000000000000004, 0.30000000000000004, 0.30000000000000004}},
    {"ExponentialLR,gamma=0.98",
     {0.3, 0.294, 0.28812, 0.27117623904, 0.26043765997401597, 0.24512184206626403,
      0.16364529581473108, 0.08926594280763615, 0.039785866768425916, 0.014488806373046314,
      0.002708924437755252, 0.0007140323473320652}},
    {"PolynomialLR,total_iters=200,power=1.5",
     {0.3, 0.2977528148481555, 0.2955112688206661, 0.28882060825017314, 0.28438862714602353,
      0.2777836388270554, 0.23509838366096847, 0.17569860557215577, 0.10606601717798217,
      0.037500000000000006, 0.0, 0.0}},
    {"CosineAnnealingLR,eta_min=0.01",
     {0.3, 0.29999204955799924, 0.2999681991038526, 0.2998012825394132, 0.29961059919754635,
      0.29920567482839955, 0.2929031948627972, 0.2723074641843672, 0.2274999999999997,
      0.1549999999999998, 0.04424957584797682, 0.01000795044200074}},
    {"CosineAnnealingLR,T_max=70",
     {0.3, 0.2998489599811972, 0.2993961440992859, 0.2962391868272735, 0.29265847744427304,
      0.28514533018536287, 0.1833781400934472, 0.014854669814637149, 0.11662185990655288,
      0.2851453301853632, 0.07306510838911402, 0.248690808890957}},
    {"CosineAnnealingWarmRestarts,T_0=20,T_mult=2,eta_min=0.02",
     {0.3, 0.2982763676833193, 0.2931479122813215, 0.2589949493661166, 0.22355866996353652,
      0.15999999999999998, 0.2589949493661166, 0.3, 0.15999999999999998, 0.29730993925645227,
      0.1246511792178779, 0.020026986332510925}},
    {"CosineAnnealingWarmRestarts,T_0=33",
     {0.3, 0.29932078838596266, 0.297289304589406, 0.2833253172982385, 0.2679079642114181,
      0.23700853643567973, 0.0060760539578254115, 0.023811970075322837, 0.29932078838596266,
      0.12865277425900723, 0.297289304589406, 0.297289304589406}},
    {"CyclicLR,base_lr=0.1,max_lr=0.7,step_size_up=20,step_size_down=50",
     {0.1, 0.1299999999999999, 0.15999999999999978, 0.24999999999999994, 0.31000000000000016,
      0.3999999999999999, 0.58, 0.21999999999999995, 0.5799999999999997, 0.3999999999999999,
      0.6639999999999995, 0.6699999999999998}},
    {"CyclicLR,max_lr=0.7,step_size_up=25,mode=triangular2",
     {0.3, 0.316, 0.332, 0.38000000000000006, 0.4120000000000001, 0.45999999999999996,
      0.6199999999999999, 0.38000000000000006, 0.3, 0.3, 0.317, 0.3005}},
    {"CyclicLR,max_lr=0.7,step_size_up=25,mode=exp_range,gamma=0.99",
     {0.3, 0.31584, 0.3313632, 0.37607920399200007, 0.40439131896558295, 0.44470113200140865,
      0.5367041194842496, 0.3875450627825219, 0.3, 0.3, 0.3261558745229364, 0.3007925801062026}},
    {"OneCycleLR",
     {0.01200000000000001, 0.012089703034275145, 0.012358700378290066, 0.014236992787932001,
      0.01637358485204815, 0.020878469252654963, 0.08547229341030313, 0.230914480599967,
      0.2979735971941718, 0.24175887783267147, 0.06736638332037352, 1.2e-06}},
    {"OneCycleLR,total_steps=300,pct_start=0.2,anneal_strategy=linear,three_phase=yes",
     {0.012, 0.01688135593220339, 0.02176271186440678, 0.03640677966101695, 0.046169491525423725,
      0.06081355932203389, 0.1584406779661017, 0.2951186440677966, 0.09986440677966102,
      0.009878665193370165, 0.0043764530386740325, 1.1999999999998123e-06}},
    {"LinearLR,total_iters=10@10:CosineAnnealingLR@150:ExponentialLR,gamma=0.9",
     {0.09999999999999999, 0.11999999999999998, 0.13999999999999999, 0.19999999999999998, 0.24, 0.3,
      0.29649308335651303, 0.27852857642513856, 0.2341780598043577, 0.3, 4.778037326555943e-05,
      4.5630493019529596e-08}},
    {"StepLR,step_size=50*LinearLR,total_iters=30*ExponentialLR,gamma=0.99",
     {0.09999999999999999, 0.10559999999999999, 0.11107799999999998, 0.12679867331999997,
      0.13670291769302517, 0.1507303458348007, 0.22191011201648392, 0.01641469927172283,
      0.0010980970238196877, 6.64355361716583e-05, 2.8848391017944574e-06,
      1.4860876991298705e-07}}};

/// As kKnown (python/tests/rate_schedules.py --momenta): the optimiser's momentum.
const Known kKnownMomenta[] = {
    {"OneCycleLR",
     {0.95, 0.9499688531130989, 0.9498754512575381, 0.9492232663930791, 0.9484813941485943,
      0.9469171981761614, 0.9244887870103113, 0.8739880275694558, 0.850675470303824,
      0.8694137850442496, 0.927544849072605, 0.95}},
    {"OneCycleLR,three_phase=yes,base_momentum=0.6,max_momentum=0.9",
     {0.9, 0.8999065593392968, 0.8996263537726146, 0.8976697991792375, 0.8954441824457833,
      0.8907515945284844, 0.8234663610309343, 0.6719640827083677, 0.6111661400143168,
      0.8325082505167263, 0.9, 0.9}},
    {"CyclicLR,max_lr=0.7,step_size_up=20,step_size_down=50",
     {0.9, 0.895, 0.89, 0.875, 0.865, 0.8500000000000001, 0.8200000000000001, 0.88,
      0.8200000000000001, 0.8500000000000001, 0.8060000000000002, 0.805}},
    {"CyclicLR,max_lr=0.7,step_size_up=25,mode=triangular2,max_momentum=0.97",
     {0.97, 0.9632, 0.9563999999999999, 0.9359999999999999, 0.9224, 0.902, 0.8340000000000001,
      0.9359999999999999, 0.97, 0.97, 0.9627749999999999, 0.9697875}}};

TEST(RateSchedules, MomentaAreThoseOfPyTorch) {
  for (const Known& known : kKnownMomenta) {
    for (size_t i = 0; i < kSome.size(); ++i) {
      const auto found =
          scheduled_momentum({.base = kBase, .schedule = known.schedule}, kSome[i], kSteps);
      ASSERT_TRUE(found) << known.schedule;
      EXPECT_NEAR(*found, known.rates[i], 1e-12) << known.schedule << ", step " << kSome[i];
    }
  }
}

TEST(RateSchedules, MomentaMoveWhereTheyAreAskedTo) {
  const auto momentum = [](const std::string& schedule) {
    return scheduled_momentum({.base = kBase, .schedule = schedule}, 0, kSteps);
  };
  EXPECT_EQ(momentum("OneCycleLR"), 0.95);
  EXPECT_EQ(momentum("OneCycleLR,cycle_momentum=no"), std::nullopt);
  EXPECT_EQ(momentum("LinearLR@5:OneCycleLR"), std::nullopt);  // not yet
  EXPECT_EQ(momentum("cosine"), std::nullopt);
  EXPECT_FALSE(needs_momentum({.schedule = "OneCycleLR"}));
  EXPECT_TRUE(needs_momentum({.schedule = "StepLR,step_size=2@9:OneCycleLR,cycle_momentum=yes"}));
}

double rate(const std::string& schedule, int64_t step, int64_t total = kSteps) {
  return learning_rate({.base = kBase, .schedule = schedule}, step, total);
}

TEST(RateSchedules, AreThoseOfPyTorch) {
  for (const Known& known : kKnown) {
    for (size_t i = 0; i < kSome.size(); ++i)
      EXPECT_NEAR(rate(known.schedule, kSome[i]), known.rates[i], 1e-12)
          << known.schedule << ", step " << kSome[i];
  }
}

/// PyTorch raises there, after a rate that climbs again.
TEST(RateSchedules, OneCycleEndsWhereItEnds) {
  EXPECT_EQ(rate("OneCycleLR", kSteps), rate("OneCycleLR", kSteps - 1));
  EXPECT_EQ(rate("OneCycleLR", 10 * kSteps), rate("OneCycleLR", kSteps - 1));
  for (const int64_t total : {0, 1, 2, 3}) EXPECT_GT(rate("OneCycleLR", 0, total), 0) << total;
}

TEST(RateSchedules, BeginAfterTheWarmUp) {
  const LearningRateSpec spec{
      .base = kBase, .schedule = "ExponentialLR,gamma=0.5", .warmup_steps = 3};
  EXPECT_DOUBLE_EQ(learning_rate(spec, 0, kSteps), kBase / 3);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 2, kSteps), kBase);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 3, kSteps), kBase);
  EXPECT_DOUBLE_EQ(learning_rate(spec, 5, kSteps), kBase / 4);
}

TEST(RateSchedules, HaveAnEndWhereTheyNameNone) {
  const auto ends = [](const std::string& schedule) {
    return has_end(LearningRateSpec{.schedule = schedule});
  };
  EXPECT_TRUE(ends("cosine"));
  EXPECT_TRUE(ends("OneCycleLR"));
  EXPECT_TRUE(ends("CosineAnnealingLR,eta_min=0.1"));
  EXPECT_TRUE(ends("CosineAnnealingLR,T_max=5@5:CosineAnnealingLR"));
  EXPECT_FALSE(ends("constant"));
  EXPECT_FALSE(ends("CosineAnnealingLR,T_max=5@5:OneCycleLR,total_steps=9"));
  EXPECT_FALSE(ends("CosineAnnealingWarmRestarts,T_0=5"));
}

std::string refusal(const std::string& schedule) {
  try {
    validate({.schedule = schedule});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(RateSchedules, SayWhatDoesNotFit) {
  const std::pair<std::string, std::string> refused[] = {
      {"sine", "expected constant, step, cosine, linear, StepLR, MultiStepLR"},
      {"StepLR", "StepLR needs step_size="},
      {"StepLR,step_size=0", "expected step_size from 1 to"},
      {"StepLR,step_size=2.5", "a whole number, found 'step_size=2.5'"},
      {"StepLR,step_size=2,gamma=nan", "expected gamma from 0"},
      {"StepLR,step_size=2,power=2", "StepLR takes step_size=, gamma=; found 'power=2'"},
      {"StepLR,step_size", "StepLR takes step_size=, gamma=; found 'step_size'"},
      {"MultiStepLR,milestones=5:2", "expected ascending steps such as 30:80"},
      {"CyclicLR,max_lr=1,mode=square", "expected mode of triangular|triangular2|exp_range"},
      {"LinearLR@0:LinearLR", "expected a step behind '@' that is after 0"},
      {"LinearLR@5LinearLR", "expected a step behind '@'"},
      {"LinearLR*OneCycleLR,total_steps=5*CyclicLR,max_lr=1", "CyclicLR has rates of its own"},
      {"LinearLR*CosineAnnealingLR,eta_min=0.1", "CosineAnnealingLR has rates of its own"},
      {"", "found ''"}};
  for (const auto& [schedule, message] : refused)
    EXPECT_THAT(refusal(schedule), HasSubstr(message)) << schedule;
  for (const Known& known : kKnown) EXPECT_EQ(refusal(known.schedule), "");
}

}  // namespace
}  // namespace penstock::train
