#include "penstock/train/evaluator.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/loss.h"
#include "penstock/runtime/fabric/world.h"
#include "penstock/train/decode.h"
#include "penstock/train/loss_mean.h"
#include "penstock/train/segment_progress.h"
#include "penstock/train/step_numbers.h"
#include "penstock/train/top_hits.h"
#include "penstock/train/training_schedule.h"
#include "penstock/train/written_score.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::train {

runtime::RunOptions run_options_for(const schedule::Schedule& schedule,
                                    const TrainOptions& options) {
  runtime::RunOptions run;
  run.credits = check_schedule(schedule);
  run.stop = options.stop;
  run.on_stuck = options.on_stuck;
  return run;
}

std::unique_ptr<PrefetchedBatches> made_ahead(const Dataset& data, const EpochBatches& batches,
                                              const schedule::Schedule& schedule,
                                              const runtime::Pipeline& pipeline,
                                              const TrainOptions& options) {
  constexpr int64_t kLeastAhead = 4;
  // A GPU's worker would be late with its launches while it gathers samples.
  const runtime::Site& site = pipeline.world().site();
  const std::vector<at::Device>& devices = site.device_of_worker;
  const bool has_gpu = std::any_of(devices.begin(), devices.end(),
                                   [](const at::Device& device) { return device.is_cuda(); });
  if ((!data.is_slow() && !has_gpu) || options.data_threads == 0) return nullptr;
  PrefetchOptions ahead{.order = {},
                        .threads = options.data_threads,
                        .ahead = std::max(kLeastAhead, int64_t{2} * options.data_threads),
                        .for_transfer = has_gpu};
  for (const WorkerId worker : site.own_workers()) {
    for (const schedule::Action& action : schedule.workers[worker.index()]) {
      if (action.op == schedule::Op::Forward && action.stage == StageId{0})
        ahead.order.push_back(action.micro_batch);
    }
  }
  if (ahead.order.empty()) return nullptr;
  return std::make_unique<PrefetchedBatches>(batches, std::move(ahead));
}

const runtime::BatchSource& source_of(const std::unique_ptr<PrefetchedBatches>& ahead,
                                      const EpochBatches& batches) {
  if (ahead) return *ahead;
  return batches;
}

Evaluator::Evaluator(const model::Model& model, const DataSplit& data, const TrainOptions& options,
                     runtime::Pipeline& pipeline)
    : model_(model),
      data_(data),
      options_(options),
      pipeline_(pipeline),
      counts_correct_(model::counts_correct(model, model::loss_for(model, options.loss))) {}

std::optional<Evaluation> Evaluator::evaluate(uint64_t seed) {
  const int64_t size = data_.test->size();
  PENSTOCK_CHECK(size > 0, size);
  const WithMeans means(pipeline_, options_);
  const int64_t batch = ceil_div(options_.mini_batch_size,
                                 std::min(options_.plan.micro_batches, options_.mini_batch_size));
  const std::vector<int64_t> order = options_.carry_state
                                         ? stream_order(size, options_.mini_batch_size)
                                         : epoch_order(size, 0, 0, /*shuffle=*/false);
  // Texts are cut as in training, so that the parts stay together.
  const BatchCut cut = options_.carry_state ? BatchCut(std::ssize(order), options_.mini_batch_size,
                                                       options_.plan.micro_batches)
                                            : BatchCut(size, batch, 1);
  const schedule::Schedule schedule = evaluation_schedule(
      options_.plan, pipeline_.links(), cut.num_micro_batches(), cut.micro_batches);
  runtime::RunOptions run_options = run_options_for(schedule, options_);
  run_options.max_timeline_events = 0;
  if (options_.carry_state) run_options.carried_places = cut.micro_batches;
  const EpochBatches batches(*data_.test, order, 0, cut, seed, options_.lengths);
  const std::unique_ptr<PrefetchedBatches> ahead =
      made_ahead(*data_.test, batches, schedule, pipeline_, options_);
  TopHits top5(kTopOutputs);
  const bool has_top5 = counts_top5();
  if (has_top5) {
    const model::LossSpec spec = model::loss_for(model_, options_.loss);
    run_options.loss = top5.beside(model::make_loss(spec), spec);
  }
  const runtime::RunResult run = pipeline_.run(schedule, source_of(ahead, batches), run_options);
  LossMean loss;
  int64_t correct = 0;
  int64_t samples = 0;
  for (size_t t = 0; t < run.mini_batches.size(); ++t) {
    const runtime::MiniBatchStats& stats = run.mini_batches[t];
    loss.add(stats, batches.mini_batch_targets(MiniBatchId{static_cast<int64_t>(t)}));
    correct += stats.correct;
    samples += stats.samples;
  }
  // Stopped in the middle: no number is better than a partial one.
  if (samples < cut.samples) return std::nullopt;
  Evaluation made{.step = pipeline_.steps(), .loss = loss.mean(), .accuracy = std::nullopt};
  if (counts_correct_) made.accuracy = accuracy_of(correct, loss.targets, counts_correct_);
  if (has_top5) made.top5 = accuracy_of(top5.of_all(ranks()), loss.targets, counts_correct_);
  if (options_.metric && traits(*options_.metric).writes) {
    made.written = score_of_written(batch);
    if (!made.written) return std::nullopt;
  }
  return made;
}

/// Of language models, which have a target for each place, only where it is asked for.
bool Evaluator::counts_top5() const {
  const model::LossSpec spec = model::loss_for(model_, options_.loss);
  if (!has_top5(model_, spec)) return false;
  return options_.metric == Metric::Top5 || model::targets_for(model_, spec).shape.empty();
}

std::optional<double> Evaluator::score_of_written(int64_t batch) {
  std::optional<Attending> attending;
  if (options_.coverage_penalty != 0) attending = attending_layer(model_);
  const auto written = decode(
      pipeline_, options_.plan, *data_.test,
      {.end = data_.translation->end,
       .most_tokens = data_.test->sample().targets.shape.front(),
       .beam = options_.beam,
       .penalties = {.length = options_.length_penalty, .coverage = options_.coverage_penalty},
       .attending = attending,
       .batch = batch,
       .shortens = options_.lengths != Lengths::Whole,
       .ranks = ranks(),
       .run_options = [this](const schedule::Schedule& schedule) {
         return run_options_for(schedule, options_);
       }});
  if (!written) return std::nullopt;
  std::vector<std::string> texts;
  for (const Tokens& tokens : *written) texts.push_back(data_.translation->text(tokens));
  return written_score(*options_.metric, texts, *data_.translation);
}

}  // namespace penstock::train
