// Planning as a job: every rank a thread, whose job is a list of what was said.
#include "penstock/job/plan_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <exception>
#include <thread>

#include "penstock/util/error.h"

namespace penstock::job {
namespace {

/// A table at which all ranks meet.
struct Table {
  explicit Table(int ranks) : texts(static_cast<size_t>(ranks)), meet(ranks) {}
  std::vector<std::string> texts;
  std::barrier<> meet;
};

class TableJob : public Job {
 public:
  TableJob(Table& table, int rank, std::vector<int> hosts, int servers)
      : table_(table), rank_(rank), hosts_(std::move(hosts)), servers_(servers) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(hosts_.size()); }
  int restart() const override { return 0; }
  int servers() const override { return servers_; }
  std::vector<int> hosts() override { return hosts_; }
  probe::JobLinks measure_links(std::chrono::milliseconds, int, const std::atomic<bool>*) override {
    return {};
  }
  void check_same(const std::string&, const std::string&) override {}
  std::unique_ptr<runtime::World> make_world(int, bool) override {
    throw InternalError("no world here");
  }

  std::vector<std::string> together(const std::function<std::string()>& part) override {
    std::exception_ptr failure;
    try {
      table_.texts[static_cast<size_t>(rank_)] = "+" + part();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      table_.texts[static_cast<size_t>(rank_)] = std::string("-") + error.what();
    }
    table_.meet.arrive_and_wait();
    std::vector<std::string> texts = table_.texts;
    table_.meet.arrive_and_wait();
    if (failure) std::rethrow_exception(failure);
    for (std::string& text : texts) {
      if (text.front() == '-') throw RuntimeError(text.substr(1));
      text.erase(0, 1);
    }
    return texts;
  }
  std::string from_first(const std::function<std::string()>& part) override {
    return together([&] { return is_first() ? part() : std::string(); }).front();
  }

 private:
  Table& table_;
  int rank_;
  std::vector<int> hosts_;
  int servers_;
};

/// What body(job) returns or throws on each rank.
std::vector<std::string> on_ranks(const std::vector<int>& hosts, int servers,
                                  const std::function<std::string(Job&)>& body) {
  Table table(static_cast<int>(hosts.size()));
  std::vector<std::string> results(hosts.size());
  std::vector<std::jthread> ranks;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    ranks.emplace_back([&, r] {
      TableJob job(table, r, hosts, servers);
      try {
        results[static_cast<size_t>(r)] = body(job);
      } catch (const std::exception& error) {
        results[static_cast<size_t>(r)] = std::string("threw ") + error.what();
      }
    });
  }
  ranks.clear();
  return results;
}

profile::Profile profile_of(int64_t forward_ns) {
  profile::Profile profile;
  profile.model = "net";
  profile.source = "measured";
  profile.batch_size = 8;
  profile.graph = graph::ModelGraph::build(
      1, {{"fc", "linear", {graph::ValueRef::model_input(0)}, 1}}, {{LayerId{0}, 0}});
  profile.costs = {{.forward_ns = forward_ns, .backward_ns = forward_ns, .output_bytes = {40}}};
  return profile;
}

TEST(PlanTogether, AllRanksMeasureAsOftenAsTheFirstPlans) {
  const auto results = on_ranks({0, 0, 1}, 0, [](Job& job) {
    std::string asked;
    const auto make = [](const MeasureFor& measure) {
      const int64_t first = measure(4).profile.costs[0].forward_ns;
      const int64_t second = measure(8).profile.costs[0].forward_ns;
      return "plan for " + std::to_string(first) + " and " + std::to_string(second);
    };
    const MeasureFor measure = [&](int64_t micro_batches) {
      asked += std::to_string(micro_batches) + " ";
      return measure_together(job, {1}, 2, [&](const profile::LayerRange&) {
        return profile::whole_share(profile_of(100 * (job.rank() + micro_batches)));
      });
    };
    return asked.empty() ? plan_together(job, make, measure) + ", asked " + asked : "";
  });
  EXPECT_THAT(results, testing::Each("plan for 500 and 900, asked 4 8 "));
}

TEST(PlanTogether, FailuresReachAllRanks) {
  const auto measure_for = [](Job& job, int64_t) {
    return measure_together(job, {1}, 1, [&](const profile::LayerRange&) {
      if (job.rank() == 1) throw RuntimeError("out of memory");
      return profile::whole_share(profile_of(100));
    });
  };
  const auto measuring = on_ranks({0, 1}, 0, [&](Job& job) {
    return plan_together(
        job, [](const MeasureFor& measure) { return measure(1).profile.model; },
        [&](int64_t m) { return measure_for(job, m); });
  });
  EXPECT_THAT(measuring, testing::Each("threw out of memory"));
  const auto planning = on_ranks({0, 1}, 0, [&](Job& job) {
    return plan_together(
        job, [](const MeasureFor&) -> std::string { throw ConfigError("no plan"); },
        [&](int64_t m) { return measure_for(job, m); });
  });
  EXPECT_THAT(planning, testing::Each("threw no plan"));
}

TEST(MeasureTogether, HostsAreComparedAndServersLeftOut) {
  const auto results = on_ranks({0, 0, 1, 2}, 1, [](Job& job) {
    int measured = 0;
    const JobProfile result = measure_together(job, {1}, 1, [&](const profile::LayerRange&) {
      ++measured;
      return profile::whole_share(profile_of(job.rank() == 2 ? 300 : 100));
    });
    return std::to_string(measured) + ": " + speeds_text(result);
  });
  const std::string text =
      ": 2 ranks measured; speed compared with their mean: host 0 2.00, host 1 0.67\n";
  EXPECT_THAT(results, testing::ElementsAre("1" + text, "0" + text, "1" + text, "0" + text));
}

// A rank that measures alone would have the machine for itself.
TEST(MeasureTogether, WhatIsKeptIsTakenWhereAllRanksHaveIt) {
  for (const int without : {-1, 0, 2}) {
    const auto results = on_ranks({0, 0, 1}, 0, [&](Job& job) {
      const JobProfile result = measure_together(
          job, {1}, 1,
          [&](const profile::LayerRange&) { return profile::whole_share(profile_of(500)); },
          [&](const profile::LayerRange&) -> std::optional<profile::Share> {
            if (job.rank() == without) return std::nullopt;
            return profile::whole_share(profile_of(100));
          });
      return std::to_string(result.profile.costs[0].forward_ns);
    });
    EXPECT_THAT(results, testing::Each(without < 0 ? "100" : "500")) << without;
  }
}

TEST(MeasureTogether, TheRanksOfAHostMeasureEachLayerOnce) {
  const auto results = on_ranks({0, 0, 0, 1}, 0, [](Job& job) {
    std::string own;
    const JobProfile result =
        measure_together(job, {10, 10, 20}, 2, [&](const profile::LayerRange& layers) {
          own = std::to_string(layers.first.value) + "-" + std::to_string(layers.last.value);
          profile::Share share{.profile = profile_of(0), .layers = layers, .measured = 1};
          profile::Profile& profile = share.profile;
          profile.graph = graph::ModelGraph::build(1,
                                                   {{"a", "k", {{LayerId{-1}, 0}}, 1},
                                                    {"b", "k", {{LayerId{0}, 0}}, 1},
                                                    {"c", "k", {{LayerId{1}, 0}}, 1}},
                                                   {{LayerId{2}, 0}});
          profile.costs.assign(3, {.output_bytes = {0}});
          for (int32_t l = layers.first.value; l <= layers.last.value; ++l)
            profile.costs[static_cast<size_t>(l)] = {.forward_ns = 100 * (job.rank() + 1),
                                                     .output_bytes = {40}};
          return share;
        });
    return own + ": " + std::to_string(result.profile.costs[0].forward_ns) + " " +
           std::to_string(result.profile.costs[2].forward_ns) + ", " +
           std::to_string(result.measured_layers);
  });
  // Of the two hosts, the means of 100 and 400, and of 200 and 400.
  EXPECT_THAT(results, testing::ElementsAre("0-1: 250 300, 1", "2-2: 250 300, 1", ": 250 300, 1",
                                            "0-2: 250 300, 1"));
}

TEST(SplitLayers, GivesEachRankAboutTheSameLoad) {
  const auto split = [](const std::vector<int64_t>& loads, int parts) {
    std::string text;
    for (const profile::LayerRange& range : split_layers(loads, parts))
      text += std::to_string(range.first.value) + "-" + std::to_string(range.last.value) + " ";
    return text;
  };
  EXPECT_EQ(split({5, 5, 5, 5}, 2), "0-1 2-3 ");
  EXPECT_EQ(split({5, 5, 5, 5}, 1), "0-3 ");
  EXPECT_EQ(split({100, 1, 1, 1}, 2), "0-0 1-3 ");
  EXPECT_EQ(split({1, 1, 1, 100}, 3), "0-1 2-2 3-3 ");
  EXPECT_EQ(split({1, 1}, 5), "0-0 1-1 ");
  EXPECT_EQ(split({0, 0, 0}, 3), "0-0 1-1 2-2 ");
}

}  // namespace
}  // namespace penstock::job
