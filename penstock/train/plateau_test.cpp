#include "penstock/train/plateau.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

struct KnownFall {
  std::string schedule;
  std::vector<double> rates;
};

const std::vector<double> kValues = {1.0, 0.9, 0.95, 0.91, 0.9, 0.8995, 0.7,  0.71,
                                     0.8, 0.7, 0.75, 0.74, 0.6, 0.61,   0.62, 0.6};

/// What PyTorch 2.13 prints (python/tests/rate_schedules.py --plateau), from a rate of 0.3.
const KnownFall kKnownFalls[] = {
    {"ReduceLROnPlateau,patience=1",
     {0.3, 0.3, 0.3, 0.03, 0.03, 0.03, 0.03, 0.03, 0.003, 0.003, 0.00030000000000000003,
      0.00030000000000000003, 0.00030000000000000003, 0.00030000000000000003,
      3.0000000000000004e-05, 3.0000000000000004e-05}},
    {"ReduceLROnPlateau,patience=0,factor=0.5,cooldown=2,min_lr=0.02",
     {0.3, 0.3, 0.15, 0.15, 0.15, 0.15, 0.15, 0.075, 0.075, 0.075, 0.0375, 0.0375, 0.0375, 0.02,
      0.02, 0.02}},
    {"ReduceLROnPlateau,patience=2,threshold=0.05,threshold_mode=abs,factor=0.3",
     {0.3, 0.3, 0.3, 0.3, 0.09, 0.09, 0.09, 0.09, 0.09, 0.027, 0.027, 0.027, 0.027, 0.027, 0.027,
      0.0081}},
    {"ReduceLROnPlateau,mode=max,patience=1,threshold=0.01,factor=0.7,eps=0.05",
     {0.3, 0.3, 0.21, 0.21, 0.147, 0.147, 0.147, 0.147, 0.147, 0.147, 0.147, 0.147, 0.147, 0.147,
      0.147, 0.147}}};

TEST(Plateau, RatesAreThoseOfPyTorch) {
  for (const KnownFall& known : kKnownFalls) {
    const std::optional<PlateauSpec> spec = plateau_of(known.schedule, Metric::Loss);
    ASSERT_TRUE(spec) << known.schedule;
    PlateauState state{.rate = 0.3};
    for (size_t i = 0; i < kValues.size(); ++i) {
      observe(*spec, kValues[i], state);
      EXPECT_DOUBLE_EQ(state.rate, known.rates[i]) << known.schedule << " evaluation " << i;
    }
  }
}

TEST(Plateau, ItFollowsTheMetricUnlessAModeIsGiven) {
  EXPECT_FALSE(plateau_of("ReduceLROnPlateau", Metric::Loss)->rises);
  EXPECT_TRUE(plateau_of("ReduceLROnPlateau", Metric::Accuracy)->rises);
  EXPECT_FALSE(plateau_of("ReduceLROnPlateau,mode=min", Metric::Accuracy)->rises);
  EXPECT_FALSE(plateau_of("StepLR,step_size=3", Metric::Loss));
}

TEST(Plateau, AValueThatIsNoNumberIsNoImprovement) {
  const PlateauSpec spec{.patience = 0};
  PlateauState state{.rate = 1};
  observe(spec, std::numeric_limits<double>::quiet_NaN(), state);
  EXPECT_FALSE(state.best);
  EXPECT_DOUBLE_EQ(state.rate, 0.1);
}

TEST(Plateau, ItIsAWholeSchedule) {
  EXPECT_THROW(plateau_of("ReduceLROnPlateau@5:ConstantLR", Metric::Loss), ConfigError);
  EXPECT_THROW(plateau_of("ReduceLROnPlateau*ConstantLR", Metric::Loss), ConfigError);
  EXPECT_THROW(plateau_of("ReduceLROnPlateau,factor=1", Metric::Loss), ConfigError);
}

}  // namespace
}  // namespace penstock::train
