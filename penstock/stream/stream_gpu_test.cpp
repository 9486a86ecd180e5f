// Streams on a GPU; skipped where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/stream/testing_stream.h"

namespace penstock::stream::testing {
namespace {

constexpr int64_t kFrames = 60;
/// Sums of a GPU are taken in another order.
constexpr double kTolerance = 1e-3;

class StreamGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (model::installed_devices().count() == 0)
      GTEST_SKIP() << model::installed_devices().obstacle();
  }
};

enum class Where : uint8_t { Cpu, Gpu, Graphs };

StreamSummary learn(frames::Task task, int stages, const std::string& weights, Where where) {
  const model::Model model = model_for(task);
  const auto queue = generated(kFrames, /*label_every=*/2);
  StreamOptions options{
      .task = task, .plan = plan_of(model, stages, weights), .learning_rate = 0.05};
  if (where != Where::Cpu) {
    options.device_of_stage = [](int count) {
      return std::vector<at::Device>(static_cast<size_t>(count), at::Device(at::kCUDA, 0));
    };
  }
  options.device_graphs = where == Where::Graphs;
  OnlineLoop loop(model, *queue, std::move(options));
  return loop.run();
}

TEST_F(StreamGpu, LearnsAsTheCpuDoes) {
  for (const frames::Task task : frames::kTasks) {
    for (const int stages : {1, 3}) {
      SCOPED_TRACE(std::string(to_string(task)) + ", stages " + std::to_string(stages));
      const StreamSummary here = learn(task, stages, "", Where::Cpu);
      const StreamSummary there = learn(task, stages, "", Where::Gpu);
      EXPECT_LT(difference(here.state, there.state), kTolerance);
      EXPECT_EQ(here.numbers.processed, there.numbers.processed);
      EXPECT_EQ(here.numbers.losses.hits.labels, there.numbers.losses.hits.labels);
      EXPECT_NEAR(here.numbers.losses.sum, there.numbers.losses.sum,
                  kTolerance * (1 + here.numbers.losses.sum));
      EXPECT_GT(there.numbers.latency_p50_ns, 0);
    }
  }
}

TEST_F(StreamGpu, GraphsLearnTheSame) {
  for (const std::string weights : {"current", "latest"}) {
    SCOPED_TRACE(weights);
    const StreamSummary eager = learn(frames::Task::Reconstruct, 3, weights, Where::Gpu);
    const StreamSummary graphs = learn(frames::Task::Reconstruct, 3, weights, Where::Graphs);
    EXPECT_THAT(graphs.graph_obstacles, ::testing::IsEmpty());
    EXPECT_LT(difference(eager.state, graphs.state), 1e-5);
  }
}

}  // namespace
}  // namespace penstock::stream::testing
