// Pipelines whose stages are spread over teams train as the whole model does.
#include <gmock/gmock.h>

#include "penstock/model/device/copies.h"
#include "penstock/model/parameter_optimizers.h"
#include "penstock/runtime/fabric/faulty/testing_faulty_world.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/testing_team_model.h"
#include "penstock/schedule/teams.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::WeightPolicy;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sums over a team's members have another order.
constexpr double kClose = 2e-6;

Case two_by(int replicas) {
  return {.kind = Strategy::OneFOneBFlush,
          .replicas = {replicas, replicas},
          .parts = 4,
          .samples = 12 * 6};
}

Trained train_whole(const std::shared_ptr<const model::Model>& whole, Case setup) {
  setup.stage_of_layer = kStagesOfTwo;
  return train(*whole, setup);
}

Case in_teams(Case setup, const TeamModel& net, int size) {
  setup.teams = {size, size};
  setup.stage_of_layer = net.stage_of_layer;
  return setup;
}

Trained train_team(const std::shared_ptr<const model::Model>& whole, const Case& setup, int size,
                   World* world = nullptr) {
  const TeamModel net = spread(whole, size);
  return train(net.model, in_teams(setup, net, size), world);
}

void expect_close(const Trained& found, const Trained& expected, double tolerance = kClose) {
  EXPECT_LT(loss_difference(found.losses, expected.losses), tolerance);
  ASSERT_EQ(found.layers.size(), expected.layers.size());
  for (size_t l = 0; l < expected.layers.size(); ++l) {
    const LayerSnapshot& a = found.layers[l];
    const LayerSnapshot& b = expected.layers[l];
    const auto same = [&](const model::Tensors& mine, const model::Tensors& theirs) {
      ASSERT_EQ(mine.size(), theirs.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        ASSERT_EQ(mine[i].sizes(), theirs[i].sizes()) << l;
        EXPECT_LT((mine[i] - theirs[i]).abs().max().item<double>(), tolerance) << l << " " << i;
      }
    };
    ASSERT_TRUE(a.here);
    same(a.weights, b.weights);
    same(a.buffers, b.buffers);
    ASSERT_EQ(a.optimizer_state.size(), b.optimizer_state.size());
    for (size_t s = 0; s < b.optimizer_state.size(); ++s)
      same(a.optimizer_state[s], b.optimizer_state[s]);
  }
}

TEST(TeamRun, TrainsAsTheWholeModel) {
  const auto whole = two_stages();
  for (const int replicas : {1, 2}) {
    const Trained expected = train_whole(whole, two_by(replicas));
    for (const int size : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} replicas, teams of {}", replicas, size));
      const Trained found = train_team(whole, two_by(replicas), size);
      expect_close(found, expected);
      expect_same_bits(found, train_team(whole, two_by(replicas), size));
    }
  }
}

TEST(TeamRun, OptimizersThatStepEachNumberByItself) {
  const auto whole = two_stages();
  for (const model::OptimizerKind kind :
       {model::OptimizerKind::Adam, model::OptimizerKind::AdamW, model::OptimizerKind::RmsProp}) {
    Case setup = two_by(1);
    setup.optimizer = model::usual_spec(kind);
    setup.optimizer.epsilon = 1e-3;
    setup.learning_rate = 0.01;
    expect_close(train_team(whole, setup, 2), train_whole(whole, setup), 2e-5);
  }
}

TEST(TeamRun, NormsCountWhatIsSpreadInEveryMemberAndOtherWeightsOnce) {
  for (const bool tied : {false, true}) {
    const auto whole = two_stages(tied);
    Case setup = two_by(2);
    setup.norm = true;
    setup.max_grad_norm = 0.05;
    const Trained expected = train_whole(whole, setup);
    for (const int size : {2, 3}) {
      const Trained found = train_team(whole, setup, size);
      for (size_t t = 0; t < expected.run.mini_batches.size(); ++t) {
        const double norm = expected.run.mini_batches[t].gradient_norm;
        EXPECT_GT(norm, 0.05);
        EXPECT_NEAR(found.run.mini_batches[t].gradient_norm, norm, 1e-5 * norm);
      }
      expect_close(found, expected);
    }
  }
}

TEST(TeamRun, EveryKindOfPassAndState) {
  const auto whole = two_stages();
  std::vector<Case> cases(10, two_by(1));
  cases[0].recompute = {true, true};
  cases[1].kind = Strategy::ZbH1;
  cases[2].kind = Strategy::OneFOneB;
  cases[2].policy = WeightPolicy::Stash;
  cases[3] = two_by(2);
  cases[3].shard_optimizer = {true, true};
  cases[3].optimizer = gentle_adam();
  cases[4].kind = Strategy::GPipe;
  cases[4].offload = {true, true};
  cases[5].kind = Strategy::TwoBuffered;
  cases[5].policy = WeightPolicy::TwoBuffered;
  cases[6].kind = Strategy::Chimera;
  cases[6].replicas = {2, 2};
  cases[7].kind = Strategy::ZbV;
  cases[8] = cases[2];
  cases[8].compensation = schedule::Compensation::Predict;
  cases[9] = cases[2];
  cases[9].policy = WeightPolicy::VerticalSync;
  for (const Case& setup : cases) {
    SCOPED_TRACE(plan::to_string(setup.kind));
    Case spread_setup = setup;
    if (!setup.shard_optimizer.empty()) spread_setup.shard_optimizer.assign(4, true);
    expect_close(train_team(whole, spread_setup, 2), train_whole(whole, setup), 2e-5);
  }
}

TEST(TeamRun, In16Bits) {
  const auto whole = two_stages();
  for (const Precision precision : {Precision::BFloat16, Precision::Float16}) {
    Case setup = two_by(1);
    setup.precision = precision;
    setup.norm = true;
    const Trained expected = train_whole(whole, setup);
    const Trained found = train_team(whole, setup, 2);
    EXPECT_LT(loss_difference(found.losses, expected.losses), 2e-2);
    EXPECT_EQ(found.loss_scale, expected.loss_scale);
    expect_same_bits(found, train_team(whole, setup, 2));
  }
}

struct Training {
  Training(const model::Model& model, const Case& setup_of_run, World* world = nullptr)
      : setup(setup_of_run),
        optimizer(model::make_optimizer(setup.optimizer)),
        batches(setup.samples, setup.mini_batch, setup.parts, kOuter, 4),
        pipeline(model, setup.stage_of_layer, shape_with_teams(setup, 1).replicas, *optimizer,
                 {.seed = 3,
                  .deadline = std::chrono::seconds(20),
                  .worker_of_replica = shape_with_teams(setup, 1).worker_of_replica,
                  .world = world}) {}

  RunResult run() {
    return pipeline.run(make_schedule(setup, batches, pipeline), batches,
                        {.learning_rate = [](int64_t) { return 0.05; },
                         .average_share = [](int64_t) { return 0.5; }});
  }

  Case setup;
  std::unique_ptr<model::Optimizer> optimizer;
  RandomBatches batches;
  Pipeline pipeline;
};

Case whole_case() {
  Case setup = two_by(1);
  setup.stage_of_layer = kStagesOfTwo;
  return setup;
}

std::vector<LayerSnapshot> copies_of(std::vector<LayerSnapshot> layers) {
  for (LayerSnapshot& layer : layers) {
    layer.weights = model::copies_of(layer.weights);
    layer.buffers = model::copies_of(layer.buffers);
    for (model::Tensors& state : layer.optimizer_state) state = model::copies_of(state);
  }
  return layers;
}

TEST(TeamRun, GoesOnFromWholeLayersInTeamsOfAnySize) {
  const auto whole = two_stages();
  Training first(*whole, whole_case());
  first.run();
  const std::vector<LayerSnapshot> copy = copies_of(first.pipeline.snapshot());
  const RunResult expected = first.run();
  for (const int size : {2, 3}) {
    const TeamModel net = spread(whole, size);
    Training other(net.model, in_teams(two_by(1), net, size));
    other.pipeline.load(copy, 6);
    EXPECT_EQ(other.pipeline.steps(), 6);
    const std::vector<LayerSnapshot> back = other.pipeline.snapshot();
    EXPECT_EQ(weight_difference(back, copy), 0);
    EXPECT_TRUE(back[0].optimizer_state[0][0].equal(copy[0].optimizer_state[0][0]));
    EXPECT_TRUE(back[1].buffers[0].equal(copy[1].buffers[0]));
    const RunResult found = other.run();
    EXPECT_NEAR(found.mini_batches.back().mean_loss(), expected.mini_batches.back().mean_loss(),
                1e-6);
  }
}

/// Each rank has one member of a stage.
TEST(TeamRun, ARankLoadsTheLayersOfWhichItHasParts) {
  const auto whole = two_stages();
  Training first(*whole, whole_case());
  first.run();
  const std::vector<LayerSnapshot> saved = copies_of(first.pipeline.snapshot());
  const TeamModel net = spread(whole, 2);
  std::vector<std::vector<LayerSnapshot>> back(4);
  const auto failures = on_ranks(rank_rigs().front(), {0, 1, 2, 3}, [&](World& world, size_t r) {
    Training other(net.model, in_teams(two_by(1), net, 2), &world);
    std::vector<LayerSnapshot> own(saved.size());
    for (size_t l = 0; l < saved.size(); ++l) {
      const bool holds = other.pipeline.holds(LayerId{static_cast<int32_t>(l)});
      EXPECT_EQ(holds, (l < 5) == (r < 2)) << l << " on " << r;
      if (holds) own[l] = saved[l];
    }
    other.pipeline.load(own, 6);
    back[r] = other.pipeline.snapshot();
  });
  ASSERT_THAT(failures, ::testing::Each(""));
  for (size_t l = 0; l < saved.size(); ++l) {
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(back[r][l].here, r == (l < 5 ? 0u : 2u));
    const LayerSnapshot& found = back[l < 5 ? 0 : 2][l];
    EXPECT_EQ(weight_difference({found}, {saved[l]}), 0);
  }
}

TEST(TeamRun, RunningMeansOfTheWeightsChangePlaces) {
  const auto whole = two_stages();
  Case setup = whole_case();
  setup.optimizer.averages = true;
  const auto trained = [&](const model::Model& model, const Case& own, bool exchanges = true) {
    Training training(model, own);
    training.run();
    if (exchanges) training.pipeline.exchange_averages();
    return copies_of(training.pipeline.snapshot());
  };
  const TeamModel net = spread(whole, 2);
  const auto expected = trained(*whole, setup);
  EXPECT_LT(weight_difference(trained(net.model, in_teams(setup, net, 2)), expected), kTolerance);
  EXPECT_GT(weight_difference(trained(*whole, setup, false), expected), 1e-3);
}

TEST(TeamRun, EvaluatesWithOneMembersLoss) {
  const auto whole = two_stages();
  const TeamModel net = spread(whole, 2);
  Training training(net.model, in_teams(two_by(1), net, 2));
  Training reference(*whole, whole_case());
  const auto evaluate = [](Training& of, std::atomic<int>& calls) {
    const schedule::ScheduleShape shape{.replicas = of.setup.replicas,
                                        .micro_batches = of.batches.num_micro_batches(),
                                        .accumulate = of.setup.parts};
    const auto forward = schedule::generate(Strategy::ForwardOnly, shape);
    const auto schedule =
        lower(schedule::with_teams(
                  forward, of.setup.teams.empty() ? std::vector<int>{1, 1} : of.setup.teams),
              of.pipeline.links());
    RunOptions options;
    options.loss = [&calls, loss = model::make_loss({})](const at::Tensor& output,
                                                         const at::Tensor& targets,
                                                         const model::MiniBatchSize& size) {
      ++calls;
      return loss(output, targets, size);
    };
    return of.pipeline.run(schedule, of.batches, options).mini_batches.front();
  };
  std::atomic<int> calls = 0;
  const MiniBatchStats expected = evaluate(reference, calls);
  const int expected_calls = calls.exchange(0);
  const MiniBatchStats found = evaluate(training, calls);
  EXPECT_EQ(calls, expected_calls);
  EXPECT_EQ(found.samples, expected.samples);
  EXPECT_NEAR(found.mean_loss(), expected.mean_loss(), 1e-6);
}

/// Puts the ranks' whole layers together.
Trained joined_layers(const std::vector<Trained>& parts) {
  Trained all = parts.front();
  for (const Trained& part : parts) {
    EXPECT_EQ(part.losses, all.losses);
    for (size_t l = 0; l < part.layers.size(); ++l) {
      if (part.layers[l].here) all.layers[l] = part.layers[l];
    }
  }
  return all;
}

class TeamRanks : public ::testing::TestWithParam<RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, TeamRanks, ::testing::ValuesIn(rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

TEST_P(TeamRanks, TrainAsOneRankBitForBit) {
  const auto whole = two_stages(/*tied=*/true);
  Case setup = two_by(2);
  setup.norm = true;
  setup.max_grad_norm = 0.05;
  const Trained expected = train_team(whole, setup, 2);
  const std::vector<std::vector<int>> placements = {
      {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 1, 0, 1, 0}};
  for (const std::vector<int>& ranks : placements) {
    SCOPED_TRACE(fmt::format("ranks {}", fmt::join(ranks, " ")));
    std::vector<Trained> parts(Site{.rank_of_worker = ranks}.num_ranks());
    const auto failures = on_ranks(GetParam(), ranks, [&](World& world, size_t rank) {
      parts[rank] = train_team(whole, setup, 2, &world);
    });
    ASSERT_THAT(failures, ::testing::Each(""));
    const Trained found = joined_layers(parts);
    expect_same_bits(found, expected);
    expect_close(found, expected, 1e-12);
  }
}

/// Four ranks of one worker: two stages with two members each.
TEST(TeamRun, TheBytesBetweenRanksAreThoseOfTheFormula) {
  const TeamModel net = spread(two_stages(), 2);
  const Case setup = in_teams(two_by(1), net, 2);
  const RankRig mesh = rank_rigs().at(1);
  std::vector<int64_t> sent(4);
  const auto failures = on_ranks(mesh, {0, 1, 2, 3}, [&](World& world, size_t rank) {
    Training training(net.model, setup, &world);
    training.run();
    sent[rank] = world.wire().sent_bytes;
  });
  ASSERT_THAT(failures, ::testing::Each(""));
  const int64_t micro_batches = 6 * 4;
  const int64_t value = 3 * kOuter * 4;          // of the samples of a micro-batch
  const int64_t between_stages = 2 * 2 * value;  // both members, both directions
  const int64_t sum = 2 * value + 4 * 8;         // of both members; what four messages say
  const int64_t sums = 3;  // of values in both stages, of gradients in the second one
  EXPECT_EQ(sent[0] + sent[1] + sent[2] + sent[3], micro_batches * (between_stages + sums * sum));
}

/// What a pipeline refuses; empty: nothing.
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(TeamRun, RefusesWhatTeamsCannotDo) {
  const auto whole = two_stages();
  const TeamModel net = spread(whole, 2);
  const Case setup = in_teams(two_by(1), net, 2);
  const auto made = [&](model::OptimizerKind kind, PipelineOptions options) {
    const auto optimizer = model::make_optimizer(model::usual_spec(kind));
    options.worker_of_replica = shape_with_teams(setup, 1).worker_of_replica;
    return refusal([&] {
      Pipeline(net.model, net.stage_of_layer, {1, 1, 1, 1}, *optimizer, options);
    });
  };
  EXPECT_EQ(made(model::OptimizerKind::Sgd, {}), "");
  EXPECT_THAT(made(model::OptimizerKind::Sgd, {.sync = plan::GradientSync::Asynchronous}),
              HasSubstr("members of a team have the same weights"));
  for (const model::OptimizerTraits& row : model::kOptimizers) {
    const std::string why = row.needs_whole_weight
                                ? fmt::format(
                                      "{} needs whole weights, and 'weight' of layer 'fc1' "
                                      "is spread over a team",
                                      row.name)
                                : "";
    EXPECT_THAT(made(row.kind, {}), ::testing::StartsWith(why));
    EXPECT_EQ(made(row.kind, {}).empty(), why.empty());
  }

  const auto optimizer = model::make_optimizer({});
  EXPECT_THAT(refusal([&] {
                Pipeline(net.model, net.stage_of_layer, {1, 1, 1, 1}, *optimizer,
                         {.worker_of_replica = {0, 0, 1, 1}});
              }),
              HasSubstr("worker 0 has two members of the team of stage 0"));
  EXPECT_THAT(refusal([&] {
                Pipeline(net.model, net.stage_of_layer, {1, 2, 1, 1}, *optimizer, {});
              }),
              HasSubstr("members of one team and have 1 and 2 replicas"));

  Training training(net.model, setup);
  const RunOptions options{.learning_rate = [](int64_t) { return 0.1; }, .carried_places = 4};
  const auto schedule = make_schedule(setup, training.batches, training.pipeline);
  EXPECT_THAT(refusal([&] { training.pipeline.run(schedule, training.batches, options); }),
              HasSubstr("not carried in teams"));
  schedule::Schedule without = schedule;
  without.shape.teams.clear();
  EXPECT_THAT(refusal([&] {
                training.pipeline.run(without, training.batches,
                                      {.learning_rate = [](int64_t) { return 0.1; }});
              }),
              HasSubstr("schedule::with_teams"));
  EXPECT_THAT(refusal([&] { training.pipeline.copy_of_stage(StageId{0}); }),
              HasSubstr("whole layers"));
}

/// Where member 1 does something else, or fails.
class Odd final : public SmallLayer {
 public:
  Odd(int64_t features, std::function<at::Tensor(const at::Tensor&, model::Team&)> body)
      : SmallLayer(features), body_(std::move(body)) {}
  std::string kind() const override { return "odd"; }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan inputs,
                         const model::ForwardContext& context) const override {
    return {body_(inputs[0], *context.team)};
  }

 private:
  std::function<at::Tensor(const at::Tensor&, model::Team&)> body_;
};

std::string failure_of_member(
    const std::function<at::Tensor(const at::Tensor&, model::Team&)>& body) {
  const TeamModel net = spread(two_stages(), 2, [&](MemberLayers::Made& made) {
    if (made.name == "fc2.sum.m1") made.layer = std::make_shared<Odd>(kOuter, body);
  });
  try {
    train(net.model, in_teams(two_by(1), net, 2));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(TeamRun, AFailureOfOneMemberEndsTheOthers) {
  EXPECT_THAT(
      failure_of_member(
          [](const at::Tensor&, model::Team&) -> at::Tensor { throw RuntimeError("had enough"); }),
      AllOf(HasSubstr("worker 1 (stage 0, member 1) failed in the forward pass of micro-batch "
                      "0 (0F0@0)"),
            HasSubstr("had enough")));
  // In backward, inside of autograd's engine, the other member waits for its gradient.
  EXPECT_THAT(failure_of_member([](const at::Tensor& x, model::Team& team) {
                at::Tensor sum = model::sum_forward(x, team);
                sum.register_hook([](const at::Tensor&) -> at::Tensor {
                  throw RuntimeError("no gradient today");
                });
                return sum;
              }),
              HasSubstr("no gradient today"));
}

TEST(TeamRun, MembersThatDoNotDoTheSameAreAnError) {
  EXPECT_THAT(failure_of_member([](const at::Tensor& x, model::Team& team) {
                return model::sum_forward(x.to(at::kDouble), team).to(at::kFloat);
              }),
              HasSubstr("has given something else than member"));
  EXPECT_THAT(failure_of_member([](const at::Tensor& x, model::Team& team) {
                return model::gather(x, team, {0, {x.size(0), x.size(0)}}).narrow(0, 0, x.size(0));
              }),
              HasSubstr("has given something else than member"));
}

TEST(TeamRun, AMemberThatStopsAnsweringIsNamed) {
  const TeamModel net = spread(two_stages(), 2);
  const Case setup = in_teams(two_by(1), net, 2);
  const auto world =
      make_faulty_world(make_local_world(4),
                        {.kill = Faults::Kill{.worker = WorkerId{0}, .call = 5, .silent = true}});
  std::string failure;
  try {
    train(net.model, setup, world.get(), std::chrono::milliseconds(300));
  } catch (const TimeoutError& error) {
    failure = error.what();
  }
  EXPECT_THAT(failure, AllOf(HasSubstr("worker 1 (stage 0, member 1): waits"),
                             HasSubstr("for the team's exchange"), HasSubstr("with member 0 in")));
}

TEST(TeamRun, WaitingForAnotherMemberIsWaitingOfTheWorker) {
  const TeamModel net = spread(two_stages(), 2, [&](MemberLayers::Made& made) {
    if (made.name != "fc2.sum.m1") return;
    made.layer = std::make_shared<Odd>(kOuter, [](const at::Tensor& x, model::Team& team) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return model::sum_forward(x, team);
    });
  });
  const Trained trained = train(net.model, in_teams(two_by(1), net, 2));
  int64_t waiting = 0;
  for (const schedule::TimelineEvent& event : trained.run.timeline.workers[0]) {
    if (event.action.op == schedule::Op::Forward) waiting += event.waiting_ns;
  }
  // 6 mini-batches of 4 micro-batches.
  EXPECT_GT(waiting, int64_t{6} * 4 * 8'000'000);
  EXPECT_GE(trained.run.waiting_ns, waiting);
}

}  // namespace
}  // namespace penstock::runtime::testing
