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

template <class Request>
bool has_row(std::string_view name) {
  const auto rows = rows_of<Request>();
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
}

template <class Request>
void expect_whole_rows() {
  std::set<std::string_view> names;
  for (const auto& row : rows_of<Request>()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(row.name.starts_with("--"));
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_GT(row.help.size(), 5U);
    ASSERT_NE(row.slot, nullptr);
    EXPECT_LE(row.least, row.most);
    for (const std::string_view other : row.excludes) EXPECT_TRUE(has_row<Request>(other)) << other;
    EXPECT_TRUE(row.needs.empty() || has_row<Request>(row.needs));
    EXPECT_FALSE(is_flag(row) && row.is_required);
  }
}

/// Each of another member.
template <class Request>
void expect_slots_apart() {
  Request request;
  std::set<const void*> places;
  for (const auto& row : rows_of<Request>()) {
    std::visit(
        [&](const auto& place) {
          using Place = std::decay_t<decltype(place)>;
          if constexpr (std::is_same_v<Place, Off>) {
            EXPECT_TRUE(places.insert(place.value).second) << row.name;
          } else if constexpr (!std::is_same_v<Place, Named>) {
            EXPECT_TRUE(places.insert(place).second) << row.name;
          }
        },
        row.slot(request));
  }
}

TEST(Rows, EachIsWhole) {
  expect_whole_rows<TrainRequest>();
  expect_whole_rows<StreamRequest>();
  expect_whole_rows<ProfileRequest>();
  expect_whole_rows<SearchRequest>();
}

TEST(Rows, SlotsOfOneRequestDoNotOverlap) {
  expect_slots_apart<TrainRequest>();
  expect_slots_apart<StreamRequest>();
  expect_slots_apart<ProfileRequest>();
  expect_slots_apart<SearchRequest>();
}

TEST(Rows, OfATrainingHaveAKeywordOrAReason) {
  std::set<std::string_view> keywords;
  for (const Row& row : train_rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_NE(row.keyword.empty(), row.not_in_python.empty());
    EXPECT_TRUE(row.keyword.empty() || keywords.insert(row.keyword).second);
  }
}

template <class Request>
void expect_no_keywords() {
  for (const auto& row : rows_of<Request>()) {
    EXPECT_TRUE(row.keyword.empty()) << row.name;
    EXPECT_EQ(row.changes, Changes::Run) << row.name;
    EXPECT_EQ(row.kept, nullptr) << row.name;
    EXPECT_EQ(row.idle, nullptr) << row.name;
  }
}

TEST(Rows, OfOtherCommandsAreNotPythonsAndResumeNothing) {
  expect_no_keywords<StreamRequest>();
  expect_no_keywords<ProfileRequest>();
  expect_no_keywords<SearchRequest>();
}

TEST(Rows, SayWhatIsUsual) {
  const auto usual_of = []<class Request>(std::string_view name, const Request&) {
    for (const auto& row : rows_of<Request>())
      if (row.name == name) return usual_text(row);
    return std::string("no such row");
  };
  EXPECT_EQ(usual_of("--weight-decay", TrainRequest{}), "");  // 0
  EXPECT_EQ(usual_of("--weight-decay", StreamRequest{}), "0");
  EXPECT_EQ(usual_of("--model", StreamRequest{}), "partime");
  EXPECT_EQ(usual_of("--strategy", StreamRequest{}), "online");
  EXPECT_EQ(usual_of("--workers", StreamRequest{}), "");
  EXPECT_EQ(usual_of("--grey", StreamRequest{}), "");
  EXPECT_EQ(usual_of("--concurrency", ProfileRequest{}), std::to_string(usual_concurrency()));
  EXPECT_EQ(usual_of("--precision", ProfileRequest{}), "float32");
  EXPECT_EQ(usual_of("--sync", SearchRequest{}), "auto");
  EXPECT_EQ(usual_of("--recompute", SearchRequest{}), "auto");
}

/// Sets values by their names, and expects to read them back.
template <class Request>
void read_back(std::string_view name, const std::string& value) {
  Request request;
  for (const auto& row : rows_of<Request>()) {
    if (row.name != name) continue;
    std::get<Named>(row.slot(request)).set(value);
    EXPECT_EQ(text_of(row, request), value);
    return;
  }
  ADD_FAILURE() << name;
}

TEST(Rows, NamedValuesReadBack) {
  read_back<TrainRequest>("--strategy", "zb-v");
  read_back<TrainRequest>("--strategy", "auto");
  read_back<TrainRequest>("--weights", "2bw");
  read_back<TrainRequest>("--compensate", "predict");
  read_back<TrainRequest>("--tls", "off");
  read_back<TrainRequest>("--tls", "/etc/penstock/tls");
  read_back<TrainRequest>("--sync", "auto");
  read_back<TrainRequest>("--sync", "ring");
  read_back<TrainRequest>("--sync", "diloco:500");
  read_back<TrainRequest>("--sync-precision", "bfloat16");
  read_back<TrainRequest>("--precision", "tf32");
  read_back<TrainRequest>("--bad-samples", "skip");
  EXPECT_THROW(read_back<TrainRequest>("--sync", "rings"), ConfigError);
  EXPECT_THROW(read_back<TrainRequest>("--sync", "diloco"), ConfigError);
  EXPECT_THROW(read_back<TrainRequest>("--weights", ""), ConfigError);
  EXPECT_THROW(read_back<TrainRequest>("--bad-samples", "ignore"), ConfigError);
}

TEST(Rows, NamedValuesOfOtherCommandsReadBack) {
  read_back<StreamRequest>("--strategy", "serial");
  read_back<StreamRequest>("--weights", "latest");
  read_back<StreamRequest>("--serve", "8080");
  EXPECT_THROW(read_back<StreamRequest>("--strategy", "auto"), ConfigError);
  EXPECT_THROW(read_back<StreamRequest>("--weights", "flush"), ConfigError);
  EXPECT_THROW(read_back<StreamRequest>("--serve", "65536"), ConfigError);
  EXPECT_THROW(read_back<StreamRequest>("--serve", "80a"), ConfigError);
  read_back<ProfileRequest>("--precision", "bfloat16");
  EXPECT_THROW(read_back<ProfileRequest>("--precision", "float64"), ConfigError);
  read_back<SearchRequest>("--offload", "never");
  read_back<SearchRequest>("--sync", "auto");
  read_back<SearchRequest>("--compensate", "nesterov");
  read_back<SearchRequest>("--strategy", "1f1b");
  read_back<SearchRequest>("--sync-precision", "float16");
  EXPECT_THROW(read_back<SearchRequest>("--offload", "often"), ConfigError);
}

TEST(ProfilerOptions, ManyPassesUnlessTheirNumberIsAskedFor) {
  ProfileRequest request;
  EXPECT_EQ(profiler_options_of(request).concurrency, usual_concurrency());
  EXPECT_GT(profiler_options_of(request).wanted_error, 0);
  request.run.samples = 3;
  request.run.concurrency = 5;
  const model::ProfilerOptions profiler = profiler_options_of(request);
  EXPECT_EQ(profiler.samples, 3);
  EXPECT_EQ(profiler.concurrency, 5);
  EXPECT_EQ(profiler.wanted_error, 0);
  EXPECT_EQ(profiler.least_time.count(), 0);
  EXPECT_EQ(profiler.most_time.count(), 0);
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
  EXPECT_FALSE(kept.contains("--outer-momentum"));
  request.plan.sync = SyncRequest{plan::SyncMethod(plan::GradientSync::DiLoCo, 20)};
  kept = kept_options(request);
  EXPECT_EQ(kept.at("--sync"), "diloco:20");
  EXPECT_EQ(kept.at("--outer-learning-rate"), "0.7");
  EXPECT_EQ(kept.at("--outer-momentum"), "0.9");
  request.optimizer.kind = model::OptimizerKind::Adam;
  request.rates.schedule = "cosine";
  request.run.epochs = 3;
  kept = kept_options(request);
  EXPECT_FALSE(kept.contains("--momentum"));
  EXPECT_FALSE(kept.contains("--epochs"));  // the rate depends on the schedule's length alone
  EXPECT_EQ(kept.at("--schedule-steps"), "none");
  request.run.schedule_steps = 500;
  EXPECT_EQ(kept_options(request).at("--schedule-steps"), "500");
}

TEST(IdleOptions, SayWhyForWhatWasGiven) {
  TrainRequest request = usual();
  plan::Plan plan;
  plan.stages.resize(2);
  const std::string_view given[] = {"--lr-every",       "--staleness", "--silence",
                                    "--schedule-steps", "--lr",        "--sequence-parallel"};
  const std::string text = idle_options({request, plan}, given);
  EXPECT_THAT(text, HasSubstr("warning: --lr-every has no effect: --lr-schedule is constant"));
  EXPECT_THAT(text, HasSubstr("warning: --staleness has no effect: the plan has no replicas"));
  EXPECT_THAT(text, HasSubstr("warning: --silence has no effect: this process is not a rank"));
  EXPECT_THAT(text, HasSubstr("warning: --schedule-steps has no effect"));
  EXPECT_THAT(text, HasSubstr("warning: --sequence-parallel has no effect: the plan's stages have "
                              "no teams (--tensor)"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_EQ(idle_options({request, plan, true}, std::vector<std::string_view>{"--silence"}), "");
}

TEST(IdleOptions, SayOfNumbersThatTheRunDoesNotReach) {
  TrainRequest request = usual();
  request.run.batch_size = 100;
  request.plan.micro_batches = 1'000'000;
  request.run.gradient_groups = 200;
  request.run.warmup_steps = 5;
  plan::Plan plan;
  plan.micro_batches = 100;
  const std::string_view given[] = {"--micro-batches", "--batch-size", "--gradient-groups",
                                    "--warmup-steps"};
  EXPECT_EQ(idle_options({request, plan, false, 64, 5}, given),
            "warning: --micro-batches has no effect: a step has 100 samples, so there are no "
            "1000000 micro-batches: 100 are used\n"
            "warning: --warmup-steps has no effect: the run has 5 steps in all, and a throughput "
            "needs one of them\n"
            "warning: --batch-size has no effect: the data have 64 training samples: a step has "
            "all of them\n"
            "warning: --gradient-groups has no effect: a step has 100 micro-batches, each a group "
            "of its own already\n");
  EXPECT_EQ(idle_options({request, plan, false, 100, 6},
                         std::vector<std::string_view>{"--batch-size", "--warmup-steps"}),
            "");
}

/// What check() says of the request with a change.
template <class Request>
std::string refusal(void (*change)(Request&)) {
  Request request;
  request.model.name = "mlp";
  change(request);
  try {
    check(request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Check, NamesTheOption) {
  using R = TrainRequest;
  EXPECT_EQ(refusal<R>([](auto&) {}), "accepted");
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.batch_size = 0; }), HasSubstr("--batch-size"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.resume = true; }), HasSubstr("--resume needs"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.silence_s = 0; }), HasSubstr("--silence"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.device = "tpu"; }), HasSubstr("--device"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.device_graphs = true; }), HasSubstr("--cuda-graphs"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.plan.file = "p.json";
                r.plan.sync = SyncRequest{};
              }),
              HasSubstr("--sync auto"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.plan.strategy = plan::Strategy::GPipe;
                r.plan.weights = plan::WeightPolicy::Stash;
              }),
              HasSubstr("--strategy gpipe cannot run with --weights stash"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.plan.weights = plan::WeightPolicy::Flush;
                r.plan.compensation = plan::Compensation::Rate;
              }),
              HasSubstr("--compensate: compensation rate does not work with weights flush"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.optimizer.kind = model::OptimizerKind::Muon;
                r.plan.compensation = plan::Compensation::Predict;
              }),
              HasSubstr("does not work with the optimiser muon"));
}

TEST(Check, NamesTheOptionOfAStream) {
  using R = StreamRequest;
  EXPECT_EQ(refusal<R>([](auto&) {}), "accepted");
  EXPECT_THAT(refusal<R>([](auto& r) { r.learning_rate = -1; }), HasSubstr("--lr must be"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.resume = true; }), HasSubstr("--resume needs"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.save_every_s = 1; }), HasSubstr("--save-every needs"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.optimizer.kind = model::OptimizerKind::Adam;
                r.optimizer.momentum = 0.9;
              }),
              HasSubstr("--momentum is for sgd"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.plan.strategy = plan::Strategy::Serial;
                r.plan.workers = 2;
              }),
              HasSubstr("--strategy serial is one worker without delay: --workers"));
  EXPECT_THAT(refusal<R>([](auto& r) {
                r.source.name = "camera:0";
                r.source.keep_all = true;
              }),
              HasSubstr("--keep-all: a camera"));
}

TEST(Check, NamesTheOptionOfAProfile) {
  using R = ProfileRequest;
  EXPECT_EQ(refusal<R>([](auto&) {}), "accepted");
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.analytic = true; }), HasSubstr("--analytic needs"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.device = "tpu"; }), HasSubstr("--device: expected"));
  EXPECT_THAT(refusal<R>([](auto& r) { r.run.device = "cuda:0,cuda:1"; }), HasSubstr("--device:"));
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
