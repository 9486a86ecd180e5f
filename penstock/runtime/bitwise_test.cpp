// In flush mode losses, gradient norms and weights are bit for bit those of one worker that runs
// the same micro-batches with the same gradient groups: for every cut, schedule, replication and
// number of workers.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/runtime/test_support.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;

/// Everything that could make two cuts differ: dropout, batch normalisation, residual and skip
/// connections, a layer with two outputs, a value that six layers read, several of them next to
/// each other, and a layer that reads one value twice.
model::Model winding_model() {
  model::ModelBuilder net("winding");
  model::Value x = net.input({2, 2, 2});
  x = net.conv2d(x, {.channels = 4, .kernel = 1, .name = "stem"});
  x = net.relu(net.batch_norm2d(x, {.name = "norm1"}));
  model::Value y = net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1, .name = "conv2"});
  x = net.tanh(net.add(net.batch_norm2d(y, {.name = "norm2"}), x));
  x = net.dropout(net.flatten(x), 0.2);
  const model::Value hub = net.tanh(net.linear(x, {.features = 12, .name = "hub"}));
  const auto halves = net.split(hub, 2);
  const model::Value a = net.linear(hub, {.features = 12, .name = "a"});
  const model::Value b = net.linear(hub, {.features = 12, .name = "b"});
  x = net.tanh(net.add(a, b));
  x = net.add(
      net.linear(net.concat({halves[1], net.linear(halves[0], {.features = 6, .name = "left"})}),
                 {.features = 12, .name = "c"}),
      x);
  x = net.add(net.dropout(net.tanh(x), 0.1), hub);
  x = net.add(net.linear(net.add(hub, hub), {.features = 12, .name = "d"}), net.relu(x));
  x = net.add(net.linear(x, {.features = 12, .name = "e"}),
              net.linear(hub, {.features = 12, .name = "f"}));
  return net.build(net.linear(net.add(x, hub), {.features = 4, .name = "head"}));
}

const Case kBase{
    .mini_batch = 12, .samples = 12 * 3 + 7, .learning_rate = 0.1, .sample = {2, 2, 2}};

Case serial_of(const Case& setup) {
  Case serial = setup;
  serial.kind = Strategy::Serial;
  serial.replicas = {1};
  serial.stage_of_layer = {};
  serial.recompute = {};
  serial.chunks = 0;
  serial.slack = 0;
  return serial;
}

void expect_bits_of_serial(const Case& setup) {
  const model::Model model = winding_model();
  expect_same_bits(train(model, serial_of(setup)), train(model, setup));
}

TEST(Bitwise, TheModelLearnsAndHasManyReaders) {
  Case setup = kBase;
  setup.samples = 12 * 60;
  const Trained trained = train(winding_model(), setup);
  EXPECT_LT(trained.losses.back(), 0.8 * trained.losses.front());
}

TEST(Bitwise, EveryKindWithItsDefaultPlacement) {
  struct Setup {
    Strategy kind;
    std::vector<int> replicas;
    int64_t slack = 0;
  };
  const std::vector<Setup> setups = {
      {Strategy::ModelParallel, {1, 1, 1}},
      {Strategy::GPipe, {1, 1, 1, 1}},
      {Strategy::OneFOneBFlush, {1, 1, 1}},
      {Strategy::EagerOneFOneB, {1, 1, 1}, 1},
      {Strategy::Interleaved, {1, 1, 1, 1}},
      {Strategy::Interleaved, {1, 1, 1, 1, 1, 1}},
      {Strategy::InterleavedZb, {1, 1, 1, 1}},
      {Strategy::InterleavedZb, {2, 2, 2, 2, 2, 2}},
      {Strategy::ZbH1, {1, 1, 1}},
      {Strategy::ZbH2, {1, 1, 1}},
      {Strategy::ZbV, {1, 1, 1, 1}},
      {Strategy::ZbV, {1, 1, 1, 1, 1, 1}},
      {Strategy::DualPipeV, {1, 1, 1, 1}},
      {Strategy::VHalf, {1, 1, 1, 1, 1, 1}},
      {Strategy::VMin, {1, 1, 1, 1}},
  };
  for (const Setup& chosen : setups) {
    for (const int64_t parts : {2, 6}) {
      SCOPED_TRACE(std::string(to_string(chosen.kind)) + " " +
                   std::to_string(chosen.replicas.size()) + " stages " + std::to_string(parts));
      Case setup = kBase;
      setup.kind = chosen.kind;
      setup.replicas = chosen.replicas;
      setup.slack = chosen.slack;
      setup.parts = parts;
      if (chosen.replicas.front() == 2) setup.groups = 2;
      expect_bits_of_serial(setup);
    }
  }
}

TEST(Bitwise, ReplicasWithTheSameGradientGroups) {
  for (const std::vector<int>& replicas :
       std::vector<std::vector<int>>{{2}, {1, 2}, {2, 3, 1}, {4}}) {
    Case setup = kBase;
    setup.kind = replicas.size() == 1 ? Strategy::DataParallel : Strategy::OneFOneBFlush;
    setup.replicas = replicas;
    setup.parts = 6;
    setup.groups = 12;
    expect_bits_of_serial(setup);
  }
}

/// Where every stage has replicas, their number does not matter: each group is rounded.
TEST(Bitwise, RoundedGroupsDoNotDependOnTheNumberOfReplicas) {
  const model::Model model = winding_model();
  for (const FloatType precision : {FloatType::BFloat16, FloatType::Float16}) {
    Case setup = kBase;
    setup.kind = Strategy::DataParallel;
    setup.parts = 5;  // groups without a micro-batch, and such that wrap around
    setup.groups = 12;
    setup.gradient_precision = precision;
    setup.replicas = {2};
    const Trained two = train(model, setup);
    for (const int replicas : {3, 4, 6}) {
      setup.replicas = {replicas};
      expect_same_bits(train(model, setup), two);
    }
    // One worker that is told to round.
    Case serial = serial_of(setup);
    serial.rounded_layers.assign(static_cast<size_t>(model.graph().num_layers()), true);
    expect_same_bits(train(model, serial), two);
    serial.rounded_layers.clear();
    serial.gradient_precision = FloatType::Float32;
    const Trained wide = train(model, serial);
    EXPECT_NE(wide.losses, two.losses);
    // A stage with one replica rounds nothing.
    serial.gradient_precision = precision;
    expect_same_bits(train(model, serial), wide);
  }
}

TEST(Bitwise, TheDefaultGroupsAreTheLeastCommonMultiple) {
  const model::Model model = winding_model();
  Case setup = kBase;
  setup.kind = Strategy::GPipe;
  setup.replicas = {2, 3};
  setup.parts = 6;
  const Trained usual = train(model, setup);
  setup.groups = 6;
  expect_same_bits(usual, train(model, setup));
}

TEST(Bitwise, TwoDirectionsKeepTheirTwoCopiesEqual) {
  for (const auto& [kind, parts] :
       std::vector<std::pair<Strategy, int64_t>>{{Strategy::Chimera, 2},
                                                 {Strategy::Chimera, 4},
                                                 {Strategy::Chimera, 6},
                                                 {Strategy::DualPipe, 2},
                                                 {Strategy::DualPipe, 6},
                                                 {Strategy::DualPipe, 12}}) {
    Case setup = kBase;
    setup.kind = kind;
    setup.replicas = {2, 2, 2, 2};
    setup.parts = parts;
    setup.groups = 2;
    expect_bits_of_serial(setup);
  }
}

TEST(Bitwise, TheNormOfTheGradientAndClippingByIt) {
  Case setup = kBase;
  setup.parts = 4;
  setup.norm = true;
  const model::Model model = winding_model();
  const Trained unclipped = train(model, serial_of(setup));
  const double largest = unclipped.run.mini_batches.front().gradient_norm;
  ASSERT_GT(largest, 0.0);
  setup.max_grad_norm = largest / 4;
  setup.groups = 2;
  const Trained clipped = train(model, serial_of(setup));
  EXPECT_GT(weight_difference(clipped.layers, unclipped.layers), 1e-3);
  for (const Strategy kind :
       {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1, Strategy::Interleaved}) {
    setup.kind = kind;
    setup.replicas =
        kind == Strategy::Interleaved ? std::vector<int>{1, 1, 1, 1} : std::vector<int>{2, 1, 2};
    expect_same_bits(clipped, train(model, setup));
  }
  setup.kind = Strategy::Chimera;
  setup.replicas = {2, 2};
  expect_same_bits(clipped, train(model, setup));
}

/// Any cut: layers in topological order get ascending stages, with jumps to later stages and back
/// where the values allow it.
std::vector<StageId> random_cut(const model::Model& model, int stages) {
  const graph::ModelGraph& graph = model.graph();
  const int n = graph.num_layers();
  std::vector<StageId> result;
  for (int l = 0; l < n; ++l) {
    int least = 0;
    for (const graph::ValueRef value : graph.layer(LayerId{l}).inputs) {
      if (!value.is_model_input()) least = std::max(least, result[value.layer.index()].value);
    }
    // Most layers stay where their inputs are made, so that every stage gets some.
    const int most = std::min(stages - 1, std::max(least, (l + 1) * stages / n));
    result.push_back(StageId{*rc::gen::inRange(least, most + 1)});
  }
  for (int s = 0; s < stages; ++s)
    RC_PRE(std::find(result.begin(), result.end(), StageId{s}) != result.end());
  return result;
}

RC_GTEST_PROP(Bitwise, AnyCutUnderAnySchedule, ()) {
  const model::Model model = winding_model();
  Case setup = kBase;
  setup.samples = *rc::gen::inRange(1, 30);
  setup.parts = *rc::gen::inRange(1, 7);
  setup.groups = 2;
  setup.norm = *rc::gen::arbitrary<bool>();
  setup.kind = *rc::gen::element(Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::EagerOneFOneB,
                                 Strategy::Interleaved, Strategy::InterleavedZb, Strategy::ZbH1,
                                 Strategy::ZbH2, Strategy::ZbV, Strategy::VHalf, Strategy::VMin,
                                 Strategy::DualPipeV, Strategy::DualPipe, Strategy::Chimera);
  const bool even = traits(setup.kind).is_chunked();
  const int stages = even ? 2 * *rc::gen::inRange(1, 4) : *rc::gen::inRange(1, 6);
  setup.slack = setup.kind == Strategy::EagerOneFOneB ? 1 : 0;
  for (int s = 0; s < stages; ++s) {
    setup.replicas.resize(static_cast<size_t>(stages), 1);
    if (traits(setup.kind).replicas_per_copy() == 2)
      setup.replicas[static_cast<size_t>(s)] = 2;
    else if (!even)
      setup.replicas[static_cast<size_t>(s)] = *rc::gen::inRange(1, 3);
    setup.recompute.push_back(*rc::gen::inRange(0, 4) == 0);
  }
  // Batch normalisation needs more than one number per channel: with one sample it has four.
  setup.stage_of_layer = random_cut(model, stages);
  RC_LOG() << to_string(setup.kind) << " stages " << stages << " samples " << setup.samples
           << " parts " << setup.parts << '\n';
  expect_same_bits(train(model, serial_of(setup)), train(model, setup));
  RC_ASSERT(!::testing::Test::HasFailure());
}

}  // namespace
}  // namespace penstock::runtime::testing
