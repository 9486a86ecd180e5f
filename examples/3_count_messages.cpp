// A fabric of your own. This one counts the messages and bytes that cross workers and leaves the
// work to another fabric; one with a transport of its own implements the same two classes.
#include <ATen/ATen.h>

#include <atomic>
#include <iostream>

#include "penstock/runtime/fabric/forwarding.h"
#include "penstock/runtime/fabric/local/local_world.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/schedule/generate.h"
#include "penstock/torch.h"
#include "penstock/util/numbers/rng.h"

using namespace penstock;
using runtime::Wait;
using runtime::WaitResult;

struct Counts {
  std::atomic<int64_t> messages = 0;
  std::atomic<int64_t> bytes = 0;
};

/// One run. Workers call it from their own threads, at the same time. The base passes on what is
/// not overridden.
class CountingFabric : public runtime::ForwardingFabric {
 public:
  CountingFabric(std::unique_ptr<runtime::Fabric> inner, Counts& counts)
      : ForwardingFabric(std::move(inner)), counts_(counts) {}

  WaitResult send(const runtime::Message& message, model::Tensors tensors, Wait& wait) override {
    ++counts_.messages;
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined()) counts_.bytes += static_cast<int64_t>(tensor.nbytes());
    return ForwardingFabric::send(message, std::move(tensors), wait);
  }

 private:
  Counts& counts_;
};

/// The processes of the job; opens a fabric for each run.
class CountingWorld : public runtime::ForwardingWorld {
 public:
  using ForwardingWorld::ForwardingWorld;
  const Counts& counts() const { return counts_; }

  std::unique_ptr<runtime::Fabric> open(const runtime::RunSetup& setup, Wait& wait) override {
    return std::make_unique<CountingFabric>(ForwardingWorld::open(setup, wait), counts_);
  }

 private:
  Counts counts_;
};

/// 8 random samples in every micro-batch.
class RandomBatches : public runtime::BatchSource {
 public:
  model::Tensors inputs(MicroBatchId) const override { return {at::rand({8, 1, 28, 28})}; }
  at::Tensor targets(MicroBatchId) const override { return at::randint(10, {8}, at::kLong); }
  int64_t samples(MicroBatchId) const override { return 8; }
  int64_t mini_batch_samples(MiniBatchId) const override { return 8 * 4; }
  uint64_t seed(MicroBatchId micro_batch) const override {
    return derive_seed(1, micro_batch.value);
  }
};

int main() {
  const model::Model lenet = model::make_model({.name = "lenet5"});
  // Two stages: the convolutions, and the rest.
  std::vector<StageId> stage_of_layer;
  for (int l = 0; l < lenet.graph().num_layers(); ++l)
    stage_of_layer.push_back(StageId{l < 6 ? 0 : 1});
  const auto sgd = model::make_optimizer({.kind = model::OptimizerKind::Sgd});
  CountingWorld world(runtime::make_local_world(2));
  runtime::Pipeline pipeline(lenet, stage_of_layer, {1, 1}, *sgd, {.world = &world});

  // 2 steps of 4 micro-batches each.
  const schedule::Schedule schedule =
      schedule::lower(schedule::generate(plan::Strategy::OneFOneBFlush,
                                         {.replicas = {1, 1}, .micro_batches = 8, .accumulate = 4}),
                      pipeline.links());
  pipeline.run(schedule, RandomBatches(), {.learning_rate = [](int64_t) { return 0.1; }});
  std::cout << world.counts().messages << " messages, " << world.counts().bytes << " bytes\n";
  // Forward and backward of 8 micro-batches: 8 samples of 16 x 5 x 5 numbers of 4 bytes each.
  return world.counts().messages == 16 && world.counts().bytes == int64_t{16} * 8 * 16 * 5 * 5 * 4
             ? 0
             : 1;
}
