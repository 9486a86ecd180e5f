#include <chrono>

#include "penstock/options/request.h"

namespace penstock::options {

model::OptimizerSpec optimizer_of(const TrainRequest& request) {
  model::OptimizerSpec spec = request.optimizer;
  spec.averages = request.mean.is_used();
  spec.decays_vectors = !request.large_batch.rules || !request.large_batch.rules->decay;
  return spec;
}

train::TrainOptions train_options_of(const TrainRequest& request) {
  const RunRequest& run = request.run;
  train::TrainOptions options;
  options.mini_batch_size = run.batch_size.value_or(kUsualBatchSize);
  options.epochs = run.epochs;
  options.max_steps = run.steps.value_or(0);
  options.warmup_steps = run.warmup_steps;
  options.optimizer = optimizer_of(request);
  options.learning_rate = request.rates;
  options.corrects_momentum = !request.large_batch.rules || request.large_batch.rules->momentum;
  options.mean = request.mean;
  options.learning_rate_steps = run.schedule_steps.value_or(0);
  options.loss = request.loss;
  options.seed = run.seed;
  options.threads_per_worker = run.threads;
  options.device_graphs = run.device_graphs;
  options.data_threads = static_cast<int>(request.data.threads.value_or(options.data_threads));
  options.max_grad_norm = run.clip_norm;
  options.gradient_groups = run.gradient_groups;
  options.staleness = run.staleness;
  options.outer = run.outer;
  options.deadline = std::chrono::seconds(run.deadline_s);
  options.shuffle = request.data.shuffle;
  options.lengths = request.data.lengths;
  options.carry_state = request.data.carry_state;
  options.drop_last = request.data.drop_last;
  options.evaluate = request.data.evaluate;
  options.eval_every = request.data.eval_every.value_or(0);
  options.metric = request.data.metric;
  options.target = request.data.target;
  options.beam = request.data.beam;
  options.length_penalty = request.data.length_penalty;
  options.coverage_penalty = request.data.coverage_penalty;
  options.checkpoint = run.checkpoint;
  options.save_every = run.save_every.value_or(0);
  options.keep_last = run.keep_last;
  options.keep_best = run.keep_best;
  options.log_folder = request.output.log_folder;
  options.resume = run.resume;
  return options;
}

}  // namespace penstock::options
