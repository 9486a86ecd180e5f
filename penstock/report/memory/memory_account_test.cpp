#include "penstock/report/memory/memory_account.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "penstock/util/error.h"

namespace penstock::report {
namespace {

using testing::AllOf;
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

/// A process and a worker in which each number is this one.
Json filled(int64_t number) {
  MemoryBytes bytes;
  bytes.of.fill(number);
  ProcessAccount process{.peak_bytes = number};
  process.memory = {bytes, number, number, number, number};
  return memory_json({.processes = {process}, .workers = {{bytes, bytes}}});
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

TEST(MemoryAccount, AddsTheLargestNumbersUp) {
  constexpr int64_t kMost = INT64_MAX / 64;
  const MemoryAccount account = read_memory(JsonReader(filled(kMost), "memory"));
  EXPECT_EQ(account.processes.front().memory.named(), kMost * (int64_t{kNumMemoryKinds} + 3));
  EXPECT_DOUBLE_EQ(account.processes.front().named_share(), 14);
  EXPECT_THAT(memory_text(account), HasSubstr("1400 % of it by kind"));
  EXPECT_THAT(memory_bars(account), HasSubstr("worker 0, measured"));
  const auto difference = largest_difference(account);
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->measured, kMost);
}

TEST(MemoryAccount, RefusesNumbersThatNoMemoryHas) {
  const auto refused = [](Json json) {
    try {
      read_memory(JsonReader(json, "memory"));
    } catch (const ParseError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  for (const int64_t number : {int64_t{-1}, INT64_MIN, INT64_MAX / 64 + 1, INT64_MAX}) {
    for (const char* key : {"peak_bytes", "libraries", "objects", "slack", "resident"}) {
      Json json = filled(1);
      json["processes"][0][key] = number;
      EXPECT_THAT(refused(json), AllOf(HasSubstr(key), HasSubstr("an integer from 0 to ")))
          << number;
    }
    Json json = filled(1);
    json["processes"][0]["tensors"]["inputs"] = number;
    EXPECT_THAT(refused(json), AllOf(HasSubstr("inputs"), HasSubstr("an integer from 0 to ")));
    json = filled(1);
    json["workers"][0]["predicted"]["messages"] = number;
    EXPECT_THAT(refused(json), AllOf(HasSubstr("messages"), HasSubstr("an integer from 0 to ")));
  }
  Json json = filled(1);
  json["processes"][0]["rank"] = -1;
  EXPECT_THAT(refused(json), HasSubstr("rank"));
}

TEST(MemoryAccount, WritesWhatItReads) {
  MemoryAccount account = two_workers();
  account.workers.front().measured[MemoryKind::Working] = -64;  // another thread was counting
  EXPECT_EQ(memory_json(account)["workers"][0]["measured"]["working"], 0);
}

TEST(MemoryAccount, NamesProcessesByTheirRanks) {
  MemoryAccount account = two_workers();
  account.processes.assign(10, account.processes.front());
  // Rank 1 has counted nothing.
  for (size_t p = 0; p < 10; ++p)
    account.processes[p].rank = p == 0 ? 0 : static_cast<int64_t>(p) + 1;
  const MemoryAccount found = read_memory(JsonReader(memory_json(account), "memory"));
  const std::string text = memory_text(found);
  EXPECT_THAT(text, AllOf(HasSubstr("  rank 0 "), HasSubstr("  rank 2 "), HasSubstr("  rank 8 ")));
  EXPECT_EQ(text.find("rank 1 "), std::string::npos);
  EXPECT_EQ(text.find("rank 9 "), std::string::npos) << "more than eight";
  EXPECT_THAT(text, HasSubstr("  and 2 more processes\n"));
  EXPECT_THAT(memory_bars(found), HasSubstr("<span>rank 10, 100 MB</span>"));
  EXPECT_THAT(memory_bars(two_workers()), HasSubstr("<span>process, 100 MB</span>"));
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
