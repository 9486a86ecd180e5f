// Failures, deadlines and early stops: every worker ends, the first failure is reported, nothing
// hangs.
#include <thread>

#include "penstock/runtime/test_support.h"
#include "penstock/runtime/testing_trap.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;

model::Model trapped(Trap::What what, int fail_at) {
  model::ModelBuilder net("trapped");
  model::Value x = net.input({8});
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc1"}));
  x = net.apply(std::make_shared<Trap>(what, fail_at), {x}, "trap").front();
  x = net.tanh(net.linear(x, {.features = 16, .name = "fc2"}));
  return net.build(net.linear(x, {.features = 4, .name = "fc3"}));
}

std::string failure_of(const model::Model& model, const Case& setup,
                       std::chrono::milliseconds deadline = std::chrono::seconds(30)) {
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, static_cast<int>(setup.replicas.size())), setup.replicas,
                    *optimizer, {.deadline = deadline});
  try {
    pipeline.run(make_schedule(setup, batches, pipeline), batches,
                 {.learning_rate = [](int64_t) { return 0.1; }});
  } catch (const TimeoutError& error) {
    return std::string("timeout: ") + error.what();
  } catch (const RuntimeError& error) {
    return std::string("runtime: ") + error.what();
  }
  return "none";
}

TEST(Failure, AFailingLayerEndsTheRunAndIsNamed) {
  const Case setup{
      .kind = Strategy::OneFOneB, .replicas = {1, 1, 1}, .policy = WeightPolicy::Stash};
  const std::string message = failure_of(trapped(Trap::What::Throw, 5), setup);
  EXPECT_NE(message.find("runtime: "), std::string::npos) << message;
  EXPECT_NE(message.find("F5@"), std::string::npos) << message;
  EXPECT_NE(message.find("trap sprung"), std::string::npos) << message;
}

TEST(Failure, ATorchErrorNamesTheLayer) {
  const std::string message = failure_of(trapped(Trap::What::TorchError, 2),
                                         {.kind = Strategy::GPipe, .replicas = {1, 1}, .parts = 4});
  EXPECT_NE(message.find("layer 'trap' (trap)"), std::string::npos) << message;
  EXPECT_NE(message.find("F2@"), std::string::npos) << message;
}

TEST(Failure, AFailingReplicaWakesWorkersThatWaitForItsGradients) {
  EXPECT_NE(failure_of(trapped(Trap::What::Throw, 3),
                       {.kind = Strategy::DataParallel, .replicas = {4}, .parts = 4})
                .find("trap sprung"),
            std::string::npos);
}

TEST(Failure, AMissedDeadlineReportsWhatEveryWorkerWaitsFor) {
  const std::string message = failure_of(trapped(Trap::What::Sleep, 4),
                                         {.kind = Strategy::ModelParallel, .replicas = {1, 1}},
                                         std::chrono::milliseconds(150));
  EXPECT_NE(message.find("timeout: "), std::string::npos) << message;
  EXPECT_NE(message.find("waits"), std::string::npos) << message;
  EXPECT_NE(message.find("from stage"), std::string::npos) << message;
  EXPECT_NE(message.find("computes"), std::string::npos) << message;
}

TEST(Failure, WorkersThatDoNotReturnAfterAFailureAreReported) {
  const model::Model model = trapped(Trap::What::Sleep, 4);
  const Case setup{.kind = Strategy::ModelParallel, .replicas = {1, 1}};
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, 2), setup.replicas, *optimizer,
                    {.deadline = std::chrono::milliseconds(150)});
  std::vector<std::string> reports;
  RunOptions options{.learning_rate = [](int64_t) { return 0.1; }};
  options.on_stuck = [&](const std::string& failure) { reports.push_back(failure); };
  options.stuck_after = std::chrono::milliseconds(100);
  EXPECT_THROW(pipeline.run(make_schedule(setup, batches, pipeline), batches, options),
               TimeoutError);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].find("waited longer than 0.1 s"), std::string::npos) << reports[0];
  const size_t late = reports[0].find("0.1 s later these workers have not returned:");
  ASSERT_NE(late, std::string::npos) << reports[0];
  EXPECT_NE(reports[0].find("computes", late), std::string::npos) << reports[0];
  EXPECT_EQ(reports[0].find("failed", late), std::string::npos) << reports[0];
}

TEST(Failure, WorkersThatReturnAfterAFailureAreNotReported) {
  const model::Model model = trapped(Trap::What::Throw, 4);
  const Case setup{.kind = Strategy::ModelParallel, .replicas = {1, 1}};
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, 2), setup.replicas, *optimizer, {});
  RunOptions options{.learning_rate = [](int64_t) { return 0.1; }};
  options.on_stuck = [](const std::string& failure) { ADD_FAILURE() << failure; };
  EXPECT_THROW(pipeline.run(make_schedule(setup, batches, pipeline), batches, options),
               RuntimeError);
}

TEST(Failure, AScheduleThatDoesNotFitIsRefusedBeforeTheRun) {
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(24, 12, 1, 8, 4);
  Pipeline pipeline(model, cut(model, 3), {1, 1, 1}, *optimizer, {});
  const RunOptions options{.learning_rate = [](int64_t) { return 0.1; }};
  const schedule::ScheduleShape two{.replicas = {1, 1}, .micro_batches = 2};
  EXPECT_THROW(pipeline.run(lower(generate(Strategy::ModelParallel, two), schedule::chain_links(2)),
                            batches, options),
               ConfigError);
  const schedule::ScheduleShape three{.replicas = {1, 1, 1}, .micro_batches = 2};
  const auto compute = generate(Strategy::ModelParallel, three);
  EXPECT_THROW(pipeline.run(compute, batches, options), ConfigError);
  EXPECT_THROW(pipeline.run(lower(compute, {{StageId{0}, StageId{1}}}), batches, options),
               ConfigError);
  EXPECT_THROW(pipeline.run(lower(compute, pipeline.links()), batches, {}), ConfigError);
  // Clipping without NORM; stages on other workers; one message too many, one too few.
  EXPECT_THROW(pipeline.run(lower(compute, pipeline.links()), batches,
                            {.learning_rate = options.learning_rate, .max_grad_norm = 1}),
               ConfigError);
  schedule::ScheduleShape elsewhere = three;
  elsewhere.worker_of_replica = {0, 2, 1};
  EXPECT_THROW(pipeline.run(lower(generate(Strategy::ModelParallel, elsewhere), pipeline.links()),
                            batches, options),
               ConfigError);
  schedule::Schedule damaged = lower(compute, pipeline.links());
  auto& list = damaged.workers[1];
  const auto message = std::find_if(
      list.begin(), list.end(), [](const auto& action) { return schedule::is_receive(action.op); });
  list.insert(message, *message);
  EXPECT_THROW(pipeline.run(damaged, batches, options), ConfigError);
  damaged = lower(compute, pipeline.links());
  std::erase_if(damaged.workers[0],
                [](const auto& action) { return action.op == schedule::Op::RecvBackward; });
  std::erase_if(damaged.workers[1],
                [](const auto& action) { return action.op == schedule::Op::SendBackward; });
  EXPECT_THROW(pipeline.run(damaged, batches, options), ConfigError);
  EXPECT_NO_THROW(pipeline.run(lower(compute, pipeline.links()), batches, options));
}

TEST(Failure, AnImpossiblePipelineIsRefused) {
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  const auto make = [&](std::vector<int> replicas, const PipelineOptions& options) {
    Pipeline(model, cut(model, 2), std::move(replicas), *optimizer, options);
  };
  EXPECT_THROW(make({2, 3}, {.gradient_groups = 4}), ConfigError);
  EXPECT_THROW(make({2, 1}, {.gradient_groups = -2}), ConfigError);
  EXPECT_NO_THROW(make({2, 3}, {.gradient_groups = 12}));
  EXPECT_THROW(make({1, 1}, {.worker_of_replica = {0}}), ConfigError);
  EXPECT_THROW(make({1, 1}, {.worker_of_replica = {0, 2}}), ConfigError);
  EXPECT_THROW(make({2, 1}, {.worker_of_replica = {0, 0, 1}}), ConfigError);
  EXPECT_NO_THROW(make({1, 1}, {.worker_of_replica = {0, 0}}));
  // a stage without layers
  EXPECT_THROW(Pipeline(model, cut(model, 1), {1, 1}, *optimizer, {}), ConfigError);
}

TEST(EarlyStop, FinishesMiniBatchesThatHaveBegunAndLeavesOutTheRest) {
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  for (const Strategy kind : {Strategy::OneFOneB, Strategy::GPipe, Strategy::TwoBuffered}) {
    Case setup{.kind = kind,
               .replicas = {2, 1, 1},
               .policy = plan::default_policy(kind),
               .parts = 4,
               .samples = 12 * 50};
    const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
    Pipeline pipeline(model, cut(model, 3), setup.replicas, *optimizer, {});
    std::atomic<bool> stop{false};
    const auto schedule = make_schedule(setup, batches, pipeline);
    RunOptions options{.learning_rate = [](int64_t) { return 0.05; }, .stop = &stop};
    options.on_mini_batch = [&](MiniBatchId t, const MiniBatchStats&) {
      stop = t.value >= 7;
      return true;
    };
    const RunResult result = pipeline.run(schedule, batches, options);
    EXPECT_GE(result.mini_batches.size(), 8u);
    EXPECT_LT(result.mini_batches.size(), 20u);
    EXPECT_EQ(pipeline.steps(), static_cast<int64_t>(result.mini_batches.size()));
    for (const auto& stats : result.mini_batches) EXPECT_EQ(stats.samples, 12);
  }
}

TEST(EarlyStop, SplitSchedulesWithNormsEndTogether) {
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  for (const Strategy kind : {Strategy::ZbV, Strategy::Interleaved, Strategy::ZbH2}) {
    const Case setup{
        .kind = kind, .replicas = {1, 1, 1, 1}, .parts = 4, .samples = 12 * 50, .norm = true};
    const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
    Pipeline pipeline(model, cut(model, 4), setup.replicas, *optimizer,
                      {.worker_of_replica = shape_of(setup, 1).worker_of_replica});
    std::atomic<bool> stop{false};
    const auto schedule = make_schedule(setup, batches, pipeline);
    RunOptions options{.learning_rate = [](int64_t) { return 0.05; },
                       .stop = &stop,
                       .credits = verify::min_credits(schedule) + 4};
    options.on_mini_batch = [](MiniBatchId t, const MiniBatchStats&) { return t.value < 7; };
    const RunResult result = pipeline.run(schedule, batches, options);
    EXPECT_GE(result.mini_batches.size(), 8u);
    EXPECT_LT(result.mini_batches.size(), 20u);
    EXPECT_EQ(pipeline.steps(), static_cast<int64_t>(result.mini_batches.size()));
    for (const auto& stats : result.mini_batches) EXPECT_GT(stats.gradient_norm, 0.0);
  }
}

TEST(EarlyStop, StoppedBeforeItBeginsDoesNothing) {
  const model::Model model = skip_model();
  const auto optimizer = model::make_optimizer({});
  const RandomBatches batches(48, 12, 1, 8, 4);
  Pipeline pipeline(model, cut(model, 2), {1, 1}, *optimizer, {});
  const std::atomic<bool> stop{true};
  const Case setup{.kind = Strategy::OneFOneB, .replicas = {1, 1}, .policy = WeightPolicy::Stash};
  const auto result = pipeline.run(make_schedule(setup, batches, pipeline), batches,
                                   {.learning_rate = [](int64_t) { return 0.1; }, .stop = &stop});
  EXPECT_TRUE(result.mini_batches.empty());
  EXPECT_EQ(pipeline.steps(), 0);
}

TEST(Timeline, HoldsTheScheduleInOrder) {
  const Trained trained = train(skip_model(), {.kind = Strategy::OneFOneB,
                                               .replicas = {1, 1, 1},
                                               .policy = WeightPolicy::Stash,
                                               .samples = 12 * 6});
  const auto optimizer = model::make_optimizer({});
  const model::Model model = skip_model();
  Pipeline pipeline(model, cut(model, 3), {1, 1, 1}, *optimizer, {});
  const schedule::ScheduleShape shape{
      .replicas = {1, 1, 1}, .micro_batches = 6, .accumulate = 1, .policy = WeightPolicy::Stash};
  const auto schedule = lower(generate(Strategy::OneFOneB, shape), pipeline.links());
  ASSERT_EQ(trained.run.timeline.workers.size(), 3u);
  for (size_t w = 0; w < 3; ++w) {
    const auto& events = trained.run.timeline.workers[w];
    ASSERT_EQ(events.size(), schedule.workers[w].size());
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].action, schedule.workers[w][i]);
      EXPECT_LE(events[i].start_ns, events[i].end_ns);
      EXPECT_LE(events[i].waiting_ns, events[i].end_ns - events[i].start_ns);
      EXPECT_GE(events[i].start_ns, i > 0 ? events[i - 1].end_ns : 0);
    }
  }
}

}  // namespace
}  // namespace penstock::runtime::testing
