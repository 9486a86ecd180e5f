#include "penstock/report/memory/memory_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using testing::HasSubstr;

/// A process of 100 MB with two workers; of the second one twice as many activations are there as
/// were predicted.
MemoryAccount two_workers() {
  MemoryAccount account;
  ProcessAccount process{.peak_bytes = 100'000'000};
  process.memory.libraries = 60'000'000;
  process.memory.objects = 4'000'000;
  process.memory.slack = 6'000'000;
  process.memory.tensors[MemoryKind::Weights] = 20'000'000;
  process.memory.tensors[MemoryKind::Activations] = 6'000'000;
  account.processes = {process};
  WorkerAccount worker;
  worker.measured[MemoryKind::Weights] = worker.predicted[MemoryKind::Weights] = 10'000'000;
  worker.measured[MemoryKind::Activations] = worker.predicted[MemoryKind::Activations] = 2'000'000;
  account.workers = {worker, worker};
  account.workers[1].measured[MemoryKind::Activations] = 4'000'000;
  return account;
}

}  // namespace

TEST(MemoryAccount, NamesAShareOfTheProcess) {
  EXPECT_DOUBLE_EQ(two_workers().processes.front().named_share(), 0.96);
  EXPECT_EQ(ProcessAccount{}.named_share(), 0);
}

TEST(MemoryAccount, FindsTheKindThatIsFurthestFromItsPrediction) {
  const auto difference = largest_difference(two_workers());
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->worker, 1u);
  EXPECT_EQ(difference->kind, MemoryKind::Activations);
  EXPECT_EQ(difference->measured, 4'000'000);
  EXPECT_EQ(difference->predicted, 2'000'000);
  MemoryAccount unknown = two_workers();
  for (WorkerAccount& worker : unknown.workers) worker.predicted = {};
  EXPECT_FALSE(largest_difference(unknown).has_value());
}

TEST(MemoryAccount, JsonReadsBack) {
  const MemoryAccount account = two_workers();
  const Json json = memory_json(account);
  EXPECT_EQ(json["workers"][1]["measured"]["activations"], 4'000'000);
  EXPECT_EQ(json["processes"][0]["tensors"]["optimizer_state"], 0);
  const MemoryAccount found = read_memory(JsonReader(json, "memory"));
  ASSERT_EQ(found.processes.size(), 1u);
  EXPECT_EQ(found.processes.front().peak_bytes, 100'000'000);
  EXPECT_EQ(found.processes.front().memory, account.processes.front().memory);
  ASSERT_EQ(found.workers.size(), 2u);
  EXPECT_EQ(found.workers[1].measured, account.workers[1].measured);
  EXPECT_EQ(found.workers[1].predicted, account.workers[1].predicted);
  EXPECT_TRUE(read_memory(JsonReader(Json::object(), "memory")).empty());
}

TEST(MemoryAccount, RefusesOtherTypes) {
  const auto read = [](const Json& json) { return read_memory(JsonReader(json, "memory")); };
  EXPECT_THROW(read({{"processes", 3}}), ParseError);
  EXPECT_THROW(read({{"processes", {{{"peak_bytes", -1}}}}}), ParseError);
  EXPECT_THROW(read({{"workers", {{{"measured", {{"weights", "many"}}}}}}}), ParseError);
}

TEST(MemoryAccount, TextSaysWhatIsWhere) {
  const std::string text = memory_text(two_workers());
  EXPECT_THAT(text, HasSubstr("process        100 MB at its peak, 96 % of it by kind: libraries "
                              "60.0 MB, tensors 26.0 MB, other objects 4.00 MB, free in the heap "
                              "6.00 MB"));
  EXPECT_THAT(text, HasSubstr("largest difference: worker 1, activations: 4.00 MB measured, "
                              "2.00 MB predicted"));
  EXPECT_EQ(text.find("gradients"), std::string::npos) << "nobody has any";
  EXPECT_EQ(memory_text({}), "");
}

TEST(MemoryAccount, BarsAreInProportion) {
  const std::string page = memory_bars(two_workers());
  // The longest bar of the workers has 14 MB: 10 of weights, 4 of activations.
  EXPECT_THAT(page, HasSubstr("width:60.00%;background:var(--weights)\" title=\"weights: 10.0 MB"));
  EXPECT_THAT(page, HasSubstr("width:24.00%;background:var(--stash)"));
  EXPECT_THAT(page, HasSubstr("title=\"without a name: 4.00 MB\""));
  EXPECT_EQ(memory_bars({}), "");
}

}  // namespace penstock::report
