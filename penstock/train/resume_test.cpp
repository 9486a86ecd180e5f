// A training that is stopped, however, and goes on from its checkpoint ends with the bits of one
// that was not stopped. PENSTOCK_TRIALS=300 in the environment tries as many random combinations.
#include <ATen/Functions.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "penstock/train/checkpoint/checkpoint.h"
#include "penstock/train/checkpoint/test_folder.h"
#include "penstock/train/checkpoint_checks.h"
#include "penstock/train/plateau.h"
#include "penstock/train/step_numbers.h"
#include "penstock/train/test_training.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::train {
namespace {

int trials_asked(int usual) {
  const char* asked = std::getenv("PENSTOCK_TRIALS");
  return asked == nullptr ? usual : std::atoi(asked);
}

/// How a run ends before its end.
enum class Stop : uint8_t {
  Steps,   ///< a limit of steps
  Epochs,  ///< a limit of epochs
  Signal,  ///< the flag that SIGINT sets
  Error,   ///< a sample that cannot be read
  Watcher  ///< an observer (a callback) that throws
};
constexpr const char* kStopNames[] = {"steps", "epochs", "signal", "error", "watcher"};

/// Of these the pipeline stays full from step to step: a stop inside of an epoch drains it, which
/// changes what is learned.
const std::vector<ScheduleCase> kDelayed = {
    {"1f1b", {1, 1, 1}, 1},
    {"1f1b", {2, 1}, 1},
    {"1f1b", {1, 1}, 1, 1, "latest"},
    {"1f1b", {1, 1, 1}, 1, 1, "vertical-sync"},
    {"2bw", {1, 1, 1}, 4},
};

model::Model normalised_model() {
  model::ModelBuilder net("normalised");
  model::Value x = net.input({2, 4, 4});
  x = net.relu(net.batch_norm2d(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1})));
  x = net.relu(net.batch_norm2d(net.conv2d(x, {.channels = 4, .kernel = 3, .padding = 1})));
  return net.build(net.linear(net.flatten(x), {.features = 3}));
}

/// Fails once, at this call for inputs; not at all where it is negative.
class FailingData : public Dataset {
 public:
  FailingData(std::shared_ptr<const Dataset> data, int64_t calls)
      : data_(std::move(data)), left_(calls) {}
  std::string name() const override { return data_->name(); }
  int64_t size() const override { return data_->size(); }
  const SampleSpec& sample() const override { return data_->sample(); }
  model::Tensors inputs(const std::vector<int64_t>& indices) const override {
    if (left_.fetch_sub(1) == 0) throw RuntimeError("the disk is gone");
    return data_->inputs(indices);
  }
  at::Tensor targets(const std::vector<int64_t>& indices) const override {
    return data_->targets(indices);
  }

 private:
  std::shared_ptr<const Dataset> data_;
  mutable std::atomic<int64_t> left_;
};

/// Sets the flag, or throws, after so many steps of the run.
class Watcher : public TrainObserver {
 public:
  Watcher(Stop how, int64_t steps) : how_(how), left_(steps) {}
  void on_mini_batch(const Progress&) override {
    if (--left_ != 0) return;
    if (how_ == Stop::Watcher) throw std::logic_error("a callback raised");
    stop = how_ == Stop::Signal;
  }
  std::atomic<bool> stop{false};

 private:
  Stop how_;
  int64_t left_;
};

struct Trial {
  model::Model model;
  DataSplit data;
  TrainOptions options;
  std::vector<Stop> stops;
  std::string text;
};

template <class T>
const T& one_of(Rng& rng, const std::vector<T>& choices) {
  return choices[rng.below(choices.size())];
}

/// One of all, or SGD as often as all others together.
model::OptimizerSpec random_optimizer(Rng& rng) {
  const model::OptimizerKind kind =
      rng.below(2) == 0 ? model::OptimizerKind::Sgd
                        : model::kOptimizers[rng.below(model::kOptimizers.size())].kind;
  model::OptimizerSpec spec = model::usual_spec(kind);
  if (takes(kind, &model::OptimizerSpec::momentum)) spec.momentum = one_of<double>(rng, {0, 0.9});
  spec.weight_decay = one_of<double>(rng, {0, 0.01});
  for (const model::OptimizerFlag& flag : model::traits(kind).flags)
    spec.*flag.value = rng.below(2) == 0;
  spec.nesterov = spec.nesterov && spec.momentum > 0;
  return spec;
}

TrainOptions random_options(Rng& rng, bool delays) {
  TrainOptions options;
  options.mini_batch_size = one_of<int64_t>(rng, {8, 12, 16});
  options.epochs = 3;
  options.optimizer = random_optimizer(rng);
  options.learning_rate = {.base = 0.02,
                           .schedule = one_of<std::string>(
                               rng, {"constant", "step", "cosine", "linear", "OneCycleLR",
                                     "LinearLR@5:StepLR,step_size=3*ExponentialLR,gamma=0.9"}),
                           .warmup_steps = one_of<int64_t>(rng, {0, 0, 3}),
                           .factor = 0.5,
                           .every = 3};
  options.learning_rate_steps = one_of<int64_t>(rng, {0, 0, 15});
  options.seed = 1 + rng.below(1000);
  options.shuffle = rng.below(4) > 0;
  options.drop_last = rng.below(3) == 0;
  options.evaluate = rng.below(3) == 0;
  options.data_threads = static_cast<int>(rng.below(2));
  options.mean = one_of<WeightMean>(
      rng, {{}, {}, {.ema = 0.9}, {.swa_start = 4}, {.swa_patience = 0}, {.swa_patience = 1}});
  if (options.mean.swa_patience || rng.below(5) == 0) options.evaluate = true;
  if (options.evaluate && rng.below(2) == 0)
    options.learning_rate.schedule = "ReduceLROnPlateau,patience=0,factor=0.5,threshold=0.05";
  options.deadline = std::chrono::seconds(60);
  if (delays) return options;
  options.max_grad_norm = one_of<double>(rng, {0, 0, 0.5, INFINITY});
  options.warmup_steps = one_of<int64_t>(rng, {0, 0, 2});
  options.eval_every = one_of<int64_t>(rng, {0, 2, 3});
  return options;
}

Trial random_trial(uint64_t seed) {
  Rng rng(derive_seed(seed, hash_name("resume")));
  const bool delays = rng.below(5) == 0;
  const ScheduleCase& chosen = one_of(rng, delays ? kDelayed : flush_cases());
  const auto kind = rng.below(4);
  const bool tied = kind == 2 && !delays && chosen.micro_batches > 1;
  model::Model model = kind == 3 ? normalised_model() : branching_model(kind == 0 ? 0 : 0.2, tied);
  TrainOptions options = random_options(rng, delays);
  options.plan = plan_for(model, chosen);
  // Where replicas have unequal shares, sums depend on where a segment begins, as behind a warm-up.
  if (std::any_of(chosen.replicas.begin(), chosen.replicas.end(),
                  [&](int count) { return chosen.micro_batches % count != 0; }))
    options.warmup_steps = 0;
  if (!delays) {
    options.plan.precision = one_of<Precision>(
        rng, {Precision::Float32, Precision::Float32, Precision::BFloat16, Precision::Float16});
    for (plan::Stage& stage : options.plan.stages)
      stage.shard_optimizer = chosen.strategy == "dp" && options.seed % 2 == 0 && kind != 2 &&
                              options.plan.precision == Precision::Float32 &&
                              model::why_not_shared(optimizer_of(options)).empty();
  }
  DataSpec spec;
  spec.name = "synthetic";
  spec.sample = kind == 3 ? labelled({2, 4, 4}, 3) : labelled({6}, 3);
  spec.train_samples = 61;
  spec.test_samples = 10;
  std::vector<Stop> ways = {Stop::Epochs, Stop::Error, Stop::Watcher};
  if (!delays) ways.insert(ways.end(), {Stop::Steps, Stop::Signal});
  std::vector<Stop> stops = {one_of(rng, ways)};
  if (rng.below(2) == 0) stops.push_back(one_of(rng, ways));
  std::string text = fmt::format(
      "trial {}: {} of {}, {}, {}, batch {}, {}, clip {}, warm-up {}, {}, stops", seed,
      chosen.strategy, fmt::join(chosen.replicas, "+"), model.name(),
      to_string(options.optimizer.kind), options.mini_batch_size, options.learning_rate.schedule,
      options.max_grad_norm, options.warmup_steps, to_string(options.plan.precision));
  if (options.mean.is_used())
    text +=
        fmt::format(" with a mean (ema {}, start {}, patience {})", options.mean.ema,
                    options.mean.swa_start.value_or(-1), options.mean.swa_patience.value_or(-1));
  for (const Stop stop : stops) text += fmt::format(" {}", kStopNames[static_cast<int>(stop)]);
  return {std::move(model), load_data(spec), std::move(options), std::move(stops), std::move(text)};
}

/// A run of the trial that ends early, at a step that the seed chooses. Its checkpoint stays.
void run_until(const Trial& trial, TrainOptions options, Stop how, int64_t place) {
  const int64_t per_epoch = mini_batches_per_epoch(trial.data.train->size(), options);
  DataSplit data = trial.data;
  Watcher watcher(how, 1 + place % (2 * per_epoch));  // an epoch's end is behind some of them
  options.observer = &watcher;
  options.stop = &watcher.stop;
  const int64_t behind = has_checkpoint(options.checkpoint)
                             ? newest_position(options.checkpoint, trial.model).step
                             : 0;
  if (how == Stop::Steps) options.max_steps = behind + 1 + place % (per_epoch + 1);
  if (how == Stop::Epochs) options.epochs = std::min<int64_t>(2, 1 + behind / per_epoch);
  if (how == Stop::Error) {
    data.train = std::make_shared<FailingData>(
        trial.data.train, place % (2 * per_epoch * options.plan.micro_batches));
  }
  try {
    train(trial.model, data, options);
  } catch (const RuntimeError&) {
    if (how != Stop::Error && how != Stop::Watcher) throw;
  }
}

void expect_same_tensor(const at::Tensor& one, const at::Tensor& other, double tolerance,
                        const std::string& what) {
  if (tolerance == 0)
    EXPECT_TRUE(one.equal(other)) << what;
  else
    EXPECT_TRUE(at::allclose(one, other, tolerance, tolerance)) << what;
}

/// The state of every layer. `buffers`: the tolerance of running statistics, relative.
void expect_same_state(const std::filesystem::path& one, const std::filesystem::path& other,
                       const model::Model& model, double buffers) {
  const Checkpoint a = load_checkpoint(one, model);
  const Checkpoint b = load_checkpoint(other, model);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.next_mini_batch, b.next_mini_batch);
  EXPECT_EQ(a.rate, b.rate);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  EXPECT_EQ(a.mean, b.mean);
  for (size_t l = 0; l < a.layers.size(); ++l) {
    const std::string& name = model.graph().layer(LayerId{static_cast<int>(l)}).name;
    for (size_t w = 0; w < a.layers[l].weights.size(); ++w)
      expect_same_tensor(a.layers[l].weights[w], b.layers[l].weights[w], 0, name);
    for (size_t w = 0; w < a.layers[l].buffers.size(); ++w)
      expect_same_tensor(a.layers[l].buffers[w], b.layers[l].buffers[w], buffers,
                         name + " buffers");
    for (const auto& [state, tensors] : a.layers[l].optimizer) {
      for (size_t w = 0; w < tensors.size(); ++w)
        expect_same_tensor(tensors[w], b.layers[l].optimizer.at(state)[w], 0, name + " " + state);
    }
  }
}

/// Each replica has running statistics of its own, which are averaged at the end of an epoch, and
/// where a run stops inside of one. They count in evaluation only.
double buffer_tolerance(const Trial& trial) {
  constexpr double kOfAnotherAverage = 0.2;
  const std::vector<int> replicas = trial.options.plan.replicas();
  return *std::max_element(replicas.begin(), replicas.end()) > 1 ? kOfAnotherAverage : 0;
}

void expect_undisturbed(const Trial& trial, uint64_t seed) {
  Rng rng(derive_seed(seed, hash_name("places")));
  const TestFolder stopped;
  const TestFolder whole;
  TrainOptions options = trial.options;
  options.checkpoint = stopped.path();
  options.resume = true;
  for (const Stop how : trial.stops) {
    run_until(trial, options, how, static_cast<int64_t>(rng.below(1000)));
    if (::testing::Test::HasFatalFailure()) return;
  }
  // A schedule keeps the length of the run that began it.
  const int64_t length = has_checkpoint(stopped.path())
                             ? newest_position(stopped.path(), trial.model).rate.schedule_steps
                             : 0;
  const TrainResult last = train(trial.model, trial.data, options);
  options.checkpoint = whole.path();
  if (length > 0) options.learning_rate_steps = length;
  const TrainResult expected = train(trial.model, trial.data, options);
  const auto tail = [&](const std::vector<double>& values) {
    return std::vector<double>(values.end() - std::ssize(last.losses), values.end());
  };
  ASSERT_LE(last.losses.size(), expected.losses.size());
  EXPECT_EQ(last.losses, tail(expected.losses));
  EXPECT_EQ(last.learning_rates, tail(expected.learning_rates));
  EXPECT_EQ(last.steps, expected.steps);
  expect_same_state(stopped.path(), whole.path(), trial.model, buffer_tolerance(trial));
}

TEST(Resume, AfterAnyStopARunEndsWithTheBitsOfOneThatWasNotStopped) {
  for (int t = 0; t < trials_asked(12); ++t) {
    const auto seed = static_cast<uint64_t>(t);
    const Trial trial = random_trial(seed);
    SCOPED_TRACE(trial.text);
    expect_undisturbed(trial, seed);
  }
}

/// Goes on with whole epochs, or where no weights are delayed with single steps.
std::vector<double> go_on(Session& session, const Trial& trial) {
  std::vector<double> losses;
  const TrainOptions& options = trial.options;
  const auto order = epoch_order(trial.data.train->size(), session.seed(), 1, options.shuffle);
  for (const StepResult& step :
       session.train(*trial.data.train, order, 1, options.mini_batch_size)) {
    losses.push_back(step.loss);
    losses.push_back(step.learning_rate.value_or(-1));
  }
  return losses;
}

/// A callback that throws, one that stops, or single steps; then a save.
void expect_session_goes_on(const Trial& trial, uint64_t seed) {
  Rng rng(derive_seed(seed, hash_name("session")));
  TrainOptions options = trial.options;
  options.drop_last = false;
  // In a session the caller evaluates.
  options.mean.swa_patience.reset();
  if (plateau_of(options.learning_rate.schedule, Metric::Loss))
    options.learning_rate.schedule = "constant";
  if (has_end(options.learning_rate) && options.learning_rate_steps == 0)
    options.learning_rate_steps = 11;
  const TestFolder folder;
  Session first(trial.model, options);
  const auto order = epoch_order(trial.data.train->size(), options.seed, 0, options.shuffle);
  auto left = static_cast<int64_t>(1 + rng.below(4));
  const bool throws = rng.below(2) == 0;
  int64_t seen = 0;
  const auto callback = [&](const StepResult&) {
    ++seen;
    if (--left == 0 && throws) throw std::logic_error("a callback raised");
    return left > 0;
  };
  try {
    first.train(*trial.data.train, order, 0, options.mini_batch_size, callback);
    EXPECT_FALSE(throws);
  } catch (const std::logic_error&) {
    EXPECT_TRUE(throws);
  }
  EXPECT_GE(first.steps(), seen);
  const Place place{.epochs = 1,
                    .rate_scale = 0.1,
                    .base_rate = 0.3,
                    .classes = {"a", "b", "c"},
                    .loader = R"({"batch": 3})"};
  first.save(folder.path(), place);
  TrainOptions other = options;
  other.seed = 77;  // the checkpoint's counts
  Session second(trial.model, other);
  const Place found = second.resume(folder.path());
  EXPECT_EQ(found.epochs, 1);
  EXPECT_EQ(found.rate_scale, 0.1);
  EXPECT_EQ(found.base_rate, 0.3);
  EXPECT_EQ(found.classes, place.classes);
  EXPECT_EQ(found.loader, place.loader);
  EXPECT_EQ(second.steps(), first.steps());
  EXPECT_EQ(second.rate_of(second.steps()), first.rate_of(first.steps()));
  EXPECT_EQ(go_on(first, trial), go_on(second, trial));
  const TestFolder of_first;
  const TestFolder of_second;
  first.save(of_first.path(), {.epochs = 2});
  second.save(of_second.path(), {.epochs = 2});
  expect_same_state(of_first.path(), of_second.path(), trial.model, 0);
}

TEST(Resume, ASessionGoesOnFromItsCheckpointAsIfItHadNotEnded) {
  for (int t = 0; t < trials_asked(6); ++t) {
    const auto seed = static_cast<uint64_t>(1000 + t);
    const Trial trial = random_trial(seed);
    SCOPED_TRACE(trial.text);
    expect_session_goes_on(trial, seed);
  }
}

TEST(Resume, AScheduleKeepsItsLengthUnlessAnotherIsTold) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(64);
  const TestFolder folder;
  TrainOptions options{.plan = plan_for(model, "serial", {1}, 1), .mini_batch_size = 16};
  options.learning_rate = {.base = 0.1, .schedule = "linear"};
  options.checkpoint = folder.path();
  options.resume = true;
  options.max_steps = 4;
  options.epochs = 100;
  EXPECT_EQ(train(model, data, options).learning_rates,
            (std::vector<double>{0.1, 0.1 * 0.75, 0.1 * 0.5, 0.1 * 0.25}));
  options.max_steps = 6;
  EXPECT_EQ(train(model, data, options).learning_rates, (std::vector<double>{0, 0}));
  options.max_steps = 8;
  options.learning_rate_steps = 16;
  EXPECT_EQ(train(model, data, options).learning_rates,
            (std::vector<double>{0.1 * (1 - 6.0 / 16), 0.1 * (1 - 7.0 / 16)}));
  options.max_steps = 9;
  options.learning_rate_steps = 0;  // what was told once stays
  EXPECT_EQ(train(model, data, options).learning_rates, (std::vector<double>{0.05}));
}

TEST(Resume, ARunKeepsTheFactorOfTheRates) {
  const model::Model model = branching_model();
  const DataSplit data = feature_data(64);
  const TestFolder folder;
  TrainOptions options{.plan = plan_for(model, "serial", {1}, 1), .mini_batch_size = 16};
  Session session(model, options);
  session.save(folder.path(), {.rate_scale = 0.1});
  options.checkpoint = folder.path();
  options.resume = true;
  options.learning_rate.base = 0.4;
  for (const int64_t epochs : {1, 2}) {
    options.epochs = epochs;
    EXPECT_EQ(train(model, data, options).learning_rates, std::vector<double>(4, 0.1 * 0.4));
  }
}

}  // namespace
}  // namespace penstock::train
