// The time that the executor itself needs: its actions with layers that do nothing. This command
// prints the times of this machine:
//
//   runtime_test --gtest_filter='Overhead.*'
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "penstock/runtime/test_support.h"
#include "penstock/schedule/formats/text_format.h"

namespace penstock::runtime::testing {
namespace {

using plan::Strategy;
using schedule::Op;

class Nothing : public model::Layer {
 public:
  std::string kind() const override { return "nothing"; }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan, model::MutableTensorSpan, model::TensorSpan x,
                         const model::ForwardContext&) const override {
    return {x[0]};
  }
};

/// A weight that takes part in no product, so that gradients flow through all layers.
class OneWeight : public model::Layer {
 public:
  std::string kind() const override { return "one_weight"; }
  std::vector<model::ParameterSpec> parameters() const override {
    return {{"shift", {1, 8}, model::Init::constant(0.5)}};
  }
  std::vector<model::Shape> output_shapes(const std::vector<model::Shape>& inputs) const override {
    return inputs;
  }
  model::Tensors forward(model::TensorSpan w, model::MutableTensorSpan, model::TensorSpan x,
                         const model::ForwardContext&) const override {
    return {w[0].expand_as(x[0])};
  }
};

int64_t median(std::vector<int64_t> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

/// Median time of each kind of action without waiting. The first stage and the last, which computes
/// the loss, are left out.
std::map<Op, int64_t> own_times(Strategy kind, int stages, int chunks) {
  model::ModelBuilder net("nothing");
  model::Value x = net.apply(std::make_shared<OneWeight>(), {net.input({8})}).front();
  for (int s = 1; s < stages; ++s) x = net.apply(std::make_shared<Nothing>(), {x}).front();
  const model::Model model = net.build(x);
  const auto optimizer = model::make_optimizer({});
  const Case setup{.kind = kind,
                   .replicas = std::vector<int>(static_cast<size_t>(stages), 1),
                   .parts = 8,
                   .samples = 12 * 40,
                   .chunks = chunks};
  const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4);
  Pipeline pipeline(model, cut(model, stages), setup.replicas, *optimizer,
                    {.worker_of_replica = shape_of(setup, 1).worker_of_replica});
  const schedule::Schedule schedule = make_schedule(setup, batches, pipeline);
  const RunOptions options{.learning_rate = [](int64_t) { return 0.1; },
                           .credits = verify::min_credits(schedule) + 4};
  pipeline.run(schedule, batches, options);  // the first run includes one-time initialisation
  const RunResult result = pipeline.run(schedule, batches, options);
  std::map<Op, std::vector<int64_t>> times;
  for (const auto& worker : result.timeline.workers) {
    for (const auto& event : worker) {
      if (event.action.stage.value == 0 || event.action.stage.value == stages - 1) continue;
      times[event.action.op].push_back(event.end_ns - event.start_ns - event.waiting_ns);
    }
  }
  std::map<Op, int64_t> medians;
  for (auto& [op, list] : times) medians[op] = median(std::move(list));
  return medians;
}

/// The least of several runs: what else runs on the machine only adds to a time. It stops early
/// where every time is within the limit.
std::map<Op, int64_t> least_own_times(Strategy kind, int stages, int chunks, int64_t limit_ns) {
  constexpr int kRuns = 8;
  std::map<Op, int64_t> least = own_times(kind, stages, chunks);
  const auto is_above = [limit_ns](const auto& entry) { return entry.second > limit_ns; };
  for (int run = 1; run < kRuns && std::ranges::any_of(least, is_above); ++run) {
    for (const auto& [op, ns] : own_times(kind, stages, chunks)) {
      least[op] = std::min(least[op], ns);
    }
  }
  return least;
}

constexpr bool kOptimised =
#if defined(NDEBUG) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    true;
#else
    false;
#endif

TEST(Overhead, AnActionTakesAtMostTwentyMicroseconds) {
  constexpr int64_t kLimitNs = 20'000;
  struct Setup {
    Strategy kind;
    int stages;
    int chunks;
    const char* what;
  };
  for (const Setup& setup : {Setup{Strategy::Interleaved, 6, 6, "one worker, six stages"},
                             Setup{Strategy::ZbH1, 3, 1, "three workers, split backward"},
                             Setup{Strategy::OneFOneBFlush, 3, 1, "three workers"}}) {
    std::string line;
    for (const auto& [op, ns] : least_own_times(setup.kind, setup.stages, setup.chunks, kLimitNs)) {
      line += fmt::format(" {} {:.1f} us", schedule::to_string(op), static_cast<double>(ns) * 1e-3);
      if (kOptimised) {
        EXPECT_LE(ns, kLimitNs) << schedule::to_string(op) << ", " << setup.what;
      }
    }
    std::printf("  %s:%s\n", setup.what, line.c_str());
  }
}

}  // namespace
}  // namespace penstock::runtime::testing
