#include "penstock/report/page/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using testing::HasSubstr;

std::string message_of(const std::string& text) {
  try {
    parse_history(text, "run.json");
  } catch (const ParseError& error) {
    return error.what();
  }
  return "no error";
}

std::string with(const std::string& members) {
  return R"({"format":"penstock-history","version":1,)" + members + "}";
}

TEST(History, ReadsStepsAndEpochsAndRates) {
  const std::string members = R"("model":"m","strategy":"1f1b",
      "steps":[{"step":1,"loss":2.5,"learning_rate":0.1,"grad_norm":null},{"step":2,"loss":2}],
      "epochs":[{"epoch":1,"train_loss":2.25,"train_accuracy":0.5,"test_accuracy":0.25}],
      "throughput_samples_per_s":10,"predicted_throughput_samples_per_s":null,
      "plan":{"anything":1})";
  const History history = parse_history(with(members), "run.json");
  EXPECT_EQ(history.model, "m");
  ASSERT_EQ(history.steps.size(), 2u);
  EXPECT_EQ(history.steps[0].loss, 2.5);
  EXPECT_TRUE(std::isnan(history.steps[0].grad_norm));
  EXPECT_TRUE(std::isnan(history.steps[1].learning_rate));
  EXPECT_EQ(history.epochs.at(0).test_accuracy, 0.25);
  EXPECT_EQ(history.throughput_samples_per_s, 10);
  EXPECT_EQ(history.predicted_throughput_samples_per_s, 0);
  EXPECT_EQ(history.prediction_low_samples_per_s, 0) << "older files have no interval";
}

TEST(History, ReadsTheIntervalOfThePrediction) {
  const History history = parse_history(
      with(R"("predicted_throughput_samples_per_s":10,"prediction_low_samples_per_s":9,
              "prediction_high_samples_per_s":12)"),
      "run.json");
  EXPECT_EQ(history.prediction_low_samples_per_s, 9);
  EXPECT_EQ(history.prediction_high_samples_per_s, 12);
}

TEST(History, NamesThePlaceOfWhatItRefuses) {
  EXPECT_THAT(message_of("\x7f\x45\x4c\x46"), HasSubstr("run.json:1: not valid JSON"));
  EXPECT_THAT(message_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(message_of(R"({"format":"penstock-plan","version":1})"),
              HasSubstr("penstock-history"));
  EXPECT_THAT(message_of(R"({"format":"penstock-history","version":9})"), HasSubstr("version"));
  EXPECT_THAT(message_of(with(R"("steps":{})")), HasSubstr("steps: expected an array"));
  EXPECT_THAT(message_of(with(R"("steps":[{"step":-1}])")),
              HasSubstr("steps[0].step: expected an integer from 0"));
  EXPECT_THAT(message_of(with(R"("steps":[{"loss":1}])")), HasSubstr("\"step\" is missing"));
  EXPECT_THAT(message_of(with(R"("steps":[{"step":0,"loss":"NaN"}])")),
              HasSubstr("steps[0].loss: expected a number"));
  EXPECT_THAT(message_of(with(R"("steps":[{"step":0,"loss":NaN}])")), HasSubstr("not valid JSON"));
  EXPECT_THAT(message_of(with(R"("steps":[{"step":0,"loss":1e999}])")), HasSubstr("run.json"));
  EXPECT_THAT(message_of(with(R"("steps":[{"step":99999999999999999999}])")),
              HasSubstr("steps[0].step"));
  EXPECT_THAT(message_of(with(R"("throughput_samples_per_s":-1)")),
              HasSubstr("throughput_samples_per_s: expected a rate of at least 0"));
  EXPECT_THAT(message_of(std::string(100'000, '[')), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace penstock::report
