#include "penstock/train/data/lengths.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "penstock/model/zoo.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/data/epoch_batches.h"
#include "penstock/train/data/pair_dataset.h"
#include "penstock/train/data/ragged_dataset.h"
#include "penstock/train/data/tensor_dataset.h"
#include "penstock/train/decode.h"
#include "penstock/train/serial_check.h"
#include "penstock/train/test_training.h"
#include "penstock/train/training_schedule.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kSource = 16;
constexpr int64_t kTarget = 14;
constexpr int64_t kTokens = 12;

/// Four layers each, without dropout, so that padding is all that differs.
const model::Model& translator() {
  static const model::Model model = model::make_model({.name = "gnmt8",
                                                       .input_shape = {kSource, kTarget},
                                                       .classes = kTokens,
                                                       .width = 8,
                                                       .dropout = 0.0});
  return model;
}

/// Two calls with one seed make sentences of like lengths, as translations have them.
Sentences random_sentences(int64_t count, int64_t most, uint64_t seed) {
  Rng lengths(seed);
  Rng rng(derive_seed(seed, most));
  Sentences result{.tokens = {}, .offsets = {0}};
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = 1 + static_cast<int64_t>(lengths.below(1000)) * most / 1000;
    for (int64_t k = 0; k < length; ++k)
      all.push_back(4 + static_cast<int64_t>(rng.below(kTokens - 4)));
    result.offsets.push_back(std::ssize(all));
  }
  result.tokens = StoredArray(at::tensor(all));
  return result;
}

std::shared_ptr<const PairDataset> random_pairs(int64_t count, uint64_t seed = 3) {
  return std::make_shared<PairDataset>("pairs", samples_for(translator(), {}),
                                       random_sentences(count, kSource - 1, seed),
                                       random_sentences(count, kTarget - 1, seed),
                                       SpecialTokens{.pad = 0, .begin = 2, .end = 3}, -100);
}

DataSplit pair_split(int64_t count) {
  return {.train = random_pairs(count), .test = random_pairs(8, 9)};
}

/// Places of the inputs of an epoch's mini-batches.
int64_t padded_places(const Dataset& data, const TrainingOrder& how) {
  const std::vector<int64_t> order = training_order(data, how);
  int64_t places = 0;
  for (int64_t begin = 0; begin < std::ssize(order); begin += how.mini_batch_size) {
    const int64_t end = std::min(begin + how.mini_batch_size, std::ssize(order));
    const auto sizes = data.filled({order.begin() + begin, order.begin() + end});
    places += (end - begin) * (sizes[0][0] + sizes[1][0]);
  }
  return places;
}

TEST(TrainingOrder, HasEverySampleOnceAndLikeLengthsTogether) {
  const auto data = random_pairs(403);
  TrainingOrder how{.seed = 5, .lengths = Lengths::Bucketed, .mini_batch_size = 10};
  const std::vector<int64_t> order = training_order(*data, how);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 403u);
  EXPECT_EQ(order.size(), 403u);
  EXPECT_EQ(training_order(*data, how), order);
  how.epoch = 1;
  EXPECT_NE(training_order(*data, how), order);
  how.epoch = 0;
  const int64_t bucketed = padded_places(*data, how);
  how.lengths = Lengths::Batch;
  const int64_t batch = padded_places(*data, how);
  int64_t filled = 0;
  for (int64_t i = 0; i < data->size(); ++i)
    filled += data->filled({i})[0][0] + data->filled({i})[1][0];
  EXPECT_LT(batch, 403 * (kSource + kTarget));
  EXPECT_LT(bucketed, 0.85 * static_cast<double>(batch));
  EXPECT_GE(bucketed, filled);
}

/// By how many places neighbouring mini-batches differ, all together.
double total_jump(const Dataset& data, const TrainingOrder& how) {
  const std::vector<int64_t> order = training_order(data, how);
  double jumps = 0;
  int64_t before = -1;
  for (int64_t begin = 0; begin < std::ssize(order); begin += how.mini_batch_size) {
    const auto sizes =
        data.filled({order.begin() + begin,
                     order.begin() + std::min(begin + how.mini_batch_size, std::ssize(order))});
    const int64_t places = sizes[0][0] + sizes[1][0];
    if (before >= 0) jumps += std::abs(static_cast<double>(places - before));
    before = places;
  }
  return jumps;
}

TEST(TrainingOrder, RunsKeepLikeLengthsBehindEachOther) {
  const auto data = random_pairs(4003);
  TrainingOrder how{.seed = 5, .lengths = Lengths::Bucketed, .mini_batch_size = 10};
  const double alone = total_jump(*data, how);
  how.run = kLengthRun;
  EXPECT_LT(total_jump(*data, how), alone / 4);
  std::vector<int64_t> order = training_order(*data, how);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 4003u);
  how.epoch = 1;
  EXPECT_NE(training_order(*data, how), order);
}

TEST(TrainingOrder, TheRestStaysAtTheEnd) {
  const auto data = random_pairs(25);
  const TrainingOrder how{.seed = 5, .lengths = Lengths::Bucketed, .mini_batch_size = 10};
  const std::vector<int64_t> shuffled = epoch_order(25, 5, 0, true);
  const std::vector<int64_t> order = training_order(*data, how);
  EXPECT_TRUE(std::equal(order.begin() + 20, order.end(), shuffled.begin() + 20));
}

TEST(FilledSizes, AreTheLongestOfTheSamplesInFours) {
  const auto data = random_pairs(40);
  for (int64_t i = 0; i + 3 < 40; i += 3) {
    const std::vector<int64_t> samples = {i, i + 1, i + 2};
    const std::vector<model::Shape> sizes = data->filled(samples);
    ASSERT_EQ(sizes.size(), 3u);
    const int64_t source = data->inputs(samples)[0].ne(0).sum(1).max().item<int64_t>();
    EXPECT_GE(sizes[0][0], source);
    EXPECT_LT(sizes[0][0], source + 4);
    EXPECT_LE(sizes[0][0], kSource);
    EXPECT_EQ(sizes[1], sizes[2]) << "target and targets";
  }
}

TEST(EpochBatches, MicroBatchesHaveTheLengthOfTheirMiniBatch) {
  const auto data = random_pairs(23);
  const TrainingOrder how{.seed = 2, .lengths = Lengths::Bucketed, .mini_batch_size = 6};
  const std::vector<int64_t> order = training_order(*data, how);
  const BatchCut cut(23, 6, 3);
  const EpochBatches batches(*data, order, 0, cut, 1, Lengths::Bucketed);
  const EpochBatches whole(*data, order, 0, cut, 1);
  std::set<int64_t> lengths;
  for (int64_t b = 0; b < cut.num_micro_batches(); ++b) {
    const MicroBatchId id{b};
    const model::Tensors inputs = batches.inputs(id);
    const std::vector<model::Shape> shapes = batches.input_shapes(id);
    EXPECT_EQ(shapes, batches.input_shapes(MicroBatchId{b / 3 * 3}));
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].size(1), shapes[i][0]);
      const at::Tensor all = whole.inputs(id)[i];
      EXPECT_TRUE(at::equal(inputs[i], all.narrow(1, 0, shapes[i][0])));
      EXPECT_EQ(all.narrow(1, shapes[i][0], all.size(1) - shapes[i][0]).ne(0).sum().item<int>(), 0);
    }
    EXPECT_EQ(batches.targets(id).size(1), shapes[1][0]);
    EXPECT_EQ(batches.targets(id).ne(-100).sum().item<int>(),
              whole.targets(id).ne(-100).sum().item<int>());
    lengths.insert(shapes[0][0]);
  }
  EXPECT_GT(lengths.size(), 1u);
  EXPECT_TRUE(whole.input_shapes(MicroBatchId{0}).empty());
}

TEST(RaggedDataset, PadsWhatComesFromSeveralBatches) {
  SampleSpec sample = samples_for(translator(), {});
  const auto batch = [&](int64_t count, int64_t source, int64_t target) {
    SampleSpec own = sample;
    own.inputs[0].shape = {source};
    own.inputs[1].shape = {target};
    own.targets.shape = {target};
    return std::make_shared<TensorDataset>("batch", own,
                                           model::Tensors{at::full({count, source}, 5, at::kLong),
                                                          at::full({count, target}, 6, at::kLong)},
                                           at::full({count, target}, 7, at::kLong));
  };
  const RaggedDataset data({batch(3, 4, 5), batch(2, 6, 3)}, sample, -100);
  EXPECT_EQ(data.size(), 5);
  EXPECT_EQ(data.filled({0, 2}), (std::vector<model::Shape>{{4}, {5}, {5}}));
  EXPECT_EQ(data.filled({2, 3}), (std::vector<model::Shape>{{6}, {5}, {5}}));
  const model::Tensors inputs = data.inputs({2, 4, 3});
  EXPECT_EQ(inputs[0].sizes(), (std::vector<int64_t>{3, 6}));
  EXPECT_TRUE(at::equal(inputs[0].sum(1), at::tensor({20, 30, 30}, at::kLong)));
  EXPECT_TRUE(at::equal(inputs[1].sum(1), at::tensor({30, 18, 18}, at::kLong)));
  const at::Tensor targets = data.targets({2, 4});
  EXPECT_TRUE(at::equal(targets.eq(-100).sum(1), at::tensor({0, 2}, at::kLong)));
  EXPECT_EQ(data.count_targets({0, 4}), 8);
}

TEST(LengthGroups, AreSharesOfTheEpochUpToItsLongest) {
  const auto data = random_pairs(200);
  const TrainingOrder how{.seed = 2, .lengths = Lengths::Bucketed, .mini_batch_size = 5};
  const auto groups = length_groups(*data, how, 4);
  profile::validate(groups);
  ASSERT_GE(groups.size(), 4u);
  int64_t longest = 0;
  for (int64_t t = 0; t < 40; ++t) {
    const std::vector<int64_t> order = training_order(*data, how);
    const auto sizes = data->filled({order.begin() + 5 * t, order.begin() + 5 * (t + 1)});
    longest = std::max(longest, sizes[0][0] + sizes[1][0]);
  }
  EXPECT_EQ(groups.back().input_shapes[0][0] + groups.back().input_shapes[1][0], longest);
  EXPECT_LT(groups.front().input_shapes[0][0], groups.back().input_shapes[0][0]);
  EXPECT_TRUE(length_groups(*data, {.lengths = Lengths::Whole}, 4).empty());
  EXPECT_TRUE(length_groups(*feature_data().train, how, 4).empty()) << "no sequences";
}

TrainOptions options_with(const plan::Plan& plan, Lengths lengths) {
  TrainOptions options;
  options.plan = plan;
  options.mini_batch_size = 8;
  options.lengths = lengths;
  options.max_steps = 12;
  options.epochs = 3;
  options.learning_rate.base = 0.5;
  options.keep_weights = true;
  return options;
}

TrainResult train_pairs(const ScheduleCase& how, Lengths lengths) {
  return train(translator(), pair_split(60), options_with(plan_for(translator(), how), lengths));
}

/// Masks and ignored targets: what is padded changes nothing but rounding.
TEST(Lengths, PaddingChangesNoLoss) {
  const TrainResult whole = train_pairs({"serial", {1}, 1}, Lengths::Whole);
  const TrainResult batch = train_pairs({"serial", {1}, 1}, Lengths::Batch);
  ASSERT_EQ(whole.losses.size(), batch.losses.size());
  for (size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(whole.losses[i], batch.losses[i], 1e-5 * whole.losses[i]) << i;
  EXPECT_NEAR(*whole.test_loss, *batch.test_loss, 1e-4);
  EXPECT_LT(batch.losses.back(), batch.losses.front());
}

TEST(Lengths, EveryCutHasTheBitsOfOneWorker) {
  for (const ScheduleCase& how :
       {ScheduleCase{"zb-h1", {1, 1}, 4}, ScheduleCase{"interleaved", {1, 1, 1, 1}, 4, 2}}) {
    const TrainResult one = train_pairs({"serial", {1}, how.micro_batches}, Lengths::Bucketed);
    const TrainResult cut = train_pairs(how, Lengths::Bucketed);
    EXPECT_EQ(one.losses, cut.losses) << how.strategy;
    EXPECT_EQ(one.test_loss, cut.test_loss) << how.strategy;
  }
}

/// Delays and replicas: the check against the serial replay knows both.
TEST(Lengths, DelayedWeightsAndReplicasEqualTheReplay) {
  for (const ScheduleCase& how :
       {ScheduleCase{"1f1b", {1, 1, 1}, 1}, ScheduleCase{"1f1b-flush", {2, 1}, 2}}) {
    TrainOptions options = options_with(plan_for(translator(), how), Lengths::Bucketed);
    options.mini_batch_size = 4;
    const SerialCheck check = check_against_serial(translator(), pair_split(40), options, 6);
    EXPECT_TRUE(check.equal()) << how.strategy << ": " << check.largest_difference;
  }
}

/// A decoder that sees the places before alone writes the same, however much padding is behind.
TEST(Lengths, ShorterPassesWriteTheSame) {
  const auto data = random_pairs(6, 9);
  const plan::Plan plan = plan_for(translator(), {"1f1b-flush", {1, 1}, 2});
  const std::unique_ptr<model::Optimizer> optimizer = model::make_optimizer({});
  runtime::Pipeline pipeline(translator(), plan::stage_of_layer(plan, translator().graph()),
                             plan.replicas(), *optimizer, {});
  std::vector<std::vector<Tokens>> written;
  for (const bool shortens : {false, true}) {
    written.push_back(*decode(pipeline, plan, *data,
                              {.end = 3,
                               .most_tokens = kTarget,
                               .beam = 2,
                               .batch = 4,
                               .shortens = shortens,
                               .run_options = [](const schedule::Schedule& schedule) {
                                 runtime::RunOptions run;
                                 run.credits = check_schedule(schedule);
                                 return run;
                               }}));
  }
  EXPECT_EQ(written[0], written[1]);
  EXPECT_GT(written[0].front().size(), 1u);
}

class LengthsOnRanks : public ::testing::TestWithParam<runtime::testing::RankRig> {};
INSTANTIATE_TEST_SUITE_P(Fabrics, LengthsOnRanks,
                         ::testing::ValuesIn(runtime::testing::rank_rigs()),
                         [](const auto& rig) { return rig.param.name; });

/// Receivers provide the memory for messages before they come.
TEST_P(LengthsOnRanks, MessagesHaveTheSizesOfTheirMicroBatch) {
  const TrainResult alone = train_pairs({"1f1b-flush", {1, 1, 1}, 4}, Lengths::Bucketed);
  std::vector<TrainResult> results(3);
  const auto failures =
      runtime::testing::on_ranks(GetParam(), {0, 1, 2}, [&](runtime::World& world, size_t rank) {
        TrainOptions options =
            options_with(plan_for(translator(), {"1f1b-flush", {1, 1, 1}, 4}), Lengths::Bucketed);
        options.world = &world;
        results[rank] = train(translator(), pair_split(60), options);
      });
  ASSERT_THAT(failures, Each(""));
  EXPECT_EQ(results[0].losses, alone.losses);
}

TEST(Lengths, ARunGoesOnInsideAnEpochWithTheSameLengthsOnly) {
  const TestFolder folder;
  const plan::Plan plan = plan_for(translator(), {"1f1b-flush", {1, 1}, 2});
  const TrainResult whole =
      train(translator(), pair_split(60), options_with(plan, Lengths::Bucketed));
  TrainOptions options = options_with(plan, Lengths::Bucketed);
  options.checkpoint = folder.path();
  options.max_steps = 5;  // of 8 in an epoch
  train(translator(), pair_split(60), options);
  options.resume = true;
  options.max_steps = 12;
  const TrainResult rest = train(translator(), pair_split(60), options);
  EXPECT_TRUE(std::equal(rest.losses.begin(), rest.losses.end(), whole.losses.begin() + 5));
  ASSERT_EQ(rest.losses.size(), 7u);

  const TestFolder other;
  options = options_with(plan, Lengths::Bucketed);
  options.checkpoint = other.path();
  options.max_steps = 5;
  train(translator(), pair_split(60), options);
  options.resume = true;
  options.max_steps = 12;
  options.lengths = Lengths::Batch;
  try {
    train(translator(), pair_split(60), options);
    FAIL() << "another order was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("inside an epoch with lengths bucketed, this run has batch"));
  }
}

TEST(WhyNotShorter, NamesTheLayerThatHasOneLength) {
  EXPECT_EQ(why_not_shorter(translator(), *random_pairs(8)), "");
  model::ModelBuilder net("one length");
  const std::vector<model::Value> inputs = {net.input({kSource}), net.input({kTarget})};
  const model::Value source = net.linear(inputs[0], {.features = kTarget, .name = "all"});
  model::Model model = net.build(net.add(source, inputs[1]));
  EXPECT_THAT(why_not_shorter(model, *random_pairs(8)), HasSubstr("'all'"));
}

}  // namespace
}  // namespace penstock::train
