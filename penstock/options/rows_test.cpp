#include "penstock/options/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "penstock/util/error.h"

namespace penstock::options {
namespace {

using ::testing::HasSubstr;

TrainRequest usual() { return {.model = {.name = "mlp"}}; }

TEST(Rows, EachIsWhole) {
  std::set<std::string_view> names;
  std::set<std::string_view> keywords;
  for (const Row& row : train_rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(row.name.starts_with("--"));
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_GT(row.help.size(), 5U);
    ASSERT_NE(row.slot, nullptr);
    EXPECT_NE(row.keyword.empty(), row.not_in_python.empty());
    if (!row.keyword.empty()) {
      EXPECT_TRUE(keywords.insert(row.keyword).second);
    }
    for (const std::string_view other : row.excludes) EXPECT_NE(find_row(other), nullptr) << other;
    if (!row.needs.empty()) {
      EXPECT_NE(find_row(row.needs), nullptr);
    }
  }
}

TEST(Rows, SlotsOfOneRequestDoNotOverlap) {
  TrainRequest request;
  std::set<const void*> places;
  for (const Row& row : train_rows()) {
    const Slot slot = row.slot(request);
    std::visit(
        [&](const auto& place) {
          using Place = std::decay_t<decltype(place)>;
          if constexpr (std::is_same_v<Place, Off>) {
            EXPECT_TRUE(places.insert(place.value).second) << row.name;
          } else if constexpr (!std::is_same_v<Place, Named>) {
            EXPECT_TRUE(places.insert(place).second) << row.name;
          }
        },
        slot);
  }
}

TEST(Rows, NamedValuesReadBack) {
  TrainRequest request;
  const auto set = [&](std::string_view name, const std::string& value) {
    std::get<Named>(find_row(name)->slot(request)).set(value);
    EXPECT_EQ(text_of(*find_row(name), request), value);
  };
  set("--strategy", "zb-v");
  set("--strategy", "auto");
  set("--weights", "2bw");
  set("--sync", "auto");
  set("--sync", "ring");
  set("--sync-precision", "bfloat16");
  set("--precision", "tf32");
  set("--bad-samples", "skip");
  EXPECT_THROW(set("--sync", "rings"), ConfigError);
  EXPECT_THROW(set("--weights", ""), ConfigError);
  EXPECT_THROW(set("--bad-samples", "ignore"), ConfigError);
}

TEST(PlanRequest, HasWhatChangesThePlanAndIsNotUsual) {
  TrainRequest request = usual();
  EXPECT_EQ(plan_request(request), "");
  request.run.epochs = 7;  // changes no plan
  EXPECT_EQ(plan_request(request), "");
  request.plan.workers = 2;
  request.plan.weights = plan::WeightPolicy::Stash;
  request.plan.shard_optimizer = true;
  request.run.clip_norm = 0.5;
  EXPECT_EQ(plan_request(request), "--workers 2 --weights stash --shard-optimizer --clip-norm 0.5");
  request.plan.file = "p.json";
  EXPECT_EQ(plan_request(request), "--plan p.json");
}

TEST(KeptOptions, AreThoseThatCountWithTheOthers) {
  TrainRequest request = usual();
  auto kept = kept_options(request);
  EXPECT_EQ(kept.at("--momentum"), "0.9");
  EXPECT_EQ(kept.at("--no-shuffle"), "no");
  EXPECT_EQ(kept.at("--drop-last"), "no");
  EXPECT_EQ(kept.at("--clip-norm"), "none");
  EXPECT_EQ(kept.at("--sync"), "synchronous");
  EXPECT_FALSE(kept.contains("--epochs"));
  EXPECT_FALSE(kept.contains("--staleness"));
  EXPECT_FALSE(kept.contains("--history"));
  request.optimizer.kind = model::OptimizerKind::Adam;
  request.rates.schedule = "cosine";
  request.run.epochs = 3;
  kept = kept_options(request);
  EXPECT_FALSE(kept.contains("--momentum"));
  EXPECT_EQ(kept.at("--epochs"), "3");
  EXPECT_EQ(kept.at("--schedule-steps"), "none");
  request.run.schedule_steps = 500;  // the rate no longer depends on the run's length
  kept = kept_options(request);
  EXPECT_FALSE(kept.contains("--epochs"));
  EXPECT_EQ(kept.at("--schedule-steps"), "500");
}

TEST(IdleOptions, SayWhyForWhatWasGiven) {
  TrainRequest request = usual();
  plan::Plan plan;
  plan.stages.resize(2);
  const std::string_view given[] = {"--lr-every", "--staleness", "--silence", "--schedule-steps",
                                    "--lr"};
  const std::string text = idle_options({request, plan}, given);
  EXPECT_THAT(text, HasSubstr("warning: --lr-every has no effect: --lr-schedule is constant"));
  EXPECT_THAT(text, HasSubstr("warning: --staleness has no effect: the plan has no replicas"));
  EXPECT_THAT(text, HasSubstr("warning: --silence has no effect: this process is not a rank"));
  EXPECT_THAT(text, HasSubstr("warning: --schedule-steps has no effect"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_EQ(idle_options({request, plan, true}, std::vector<std::string_view>{"--silence"}), "");
}

TEST(Check, NamesTheOption) {
  const auto refusal = [](auto change) -> std::string {
    TrainRequest request = usual();
    change(request);
    try {
      check(request);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal([](auto&) {}), "accepted");
  EXPECT_THAT(refusal([](auto& r) { r.run.batch_size = 0; }), HasSubstr("--batch-size"));
  EXPECT_THAT(refusal([](auto& r) { r.run.resume = true; }), HasSubstr("--resume needs"));
  EXPECT_THAT(refusal([](auto& r) { r.run.silence_s = 0; }), HasSubstr("--silence"));
  EXPECT_THAT(refusal([](auto& r) { r.run.device = "tpu"; }), HasSubstr("--device"));
  EXPECT_THAT(refusal([](auto& r) { r.run.device_graphs = true; }), HasSubstr("--cuda-graphs"));
  EXPECT_THAT(refusal([](auto& r) {
                r.plan.file = "p.json";
                r.plan.sync = SyncRequest{};
              }),
              HasSubstr("--sync auto"));
  EXPECT_THAT(refusal([](auto& r) {
                r.plan.strategy = plan::Strategy::GPipe;
                r.plan.weights = plan::WeightPolicy::Stash;
              }),
              HasSubstr("--strategy gpipe cannot run with --weights stash"));
}

/// The generated page. With PENSTOCK_WRITE_DOCS in the environment it is written anew.
TEST(Rows, DocsListThem) {
  const std::string path = PENSTOCK_SOURCE_DIR "/docs/options.md";
  if (std::getenv("PENSTOCK_WRITE_DOCS") != nullptr) std::ofstream(path) << options_page();
  std::ostringstream found;
  found << std::ifstream(path).rdbuf();
  EXPECT_EQ(found.str(), options_page()) << "PENSTOCK_WRITE_DOCS=1 options_test writes it";
}

}  // namespace
}  // namespace penstock::options
