#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "penstock/probe/concurrent.h"
#include "penstock/probe/hand_over.h"
#include "penstock/probe/kernels.h"
#include "penstock/probe/machine.h"
#include "penstock/probe/measurement.h"
#include "penstock/probe/tcp_peer.h"
#include "penstock/util/error.h"

namespace penstock::probe {
namespace {

TEST(Measurement, IsTheMedianWithItsQuartiles) {
  EXPECT_EQ(measurement_of({5, 1, 4, 2, 3}), (Measurement{3, 2, 4, 5}));
  EXPECT_EQ(measurement_of({7}), (Measurement{7, 7, 7, 1}));
  EXPECT_EQ(measurement_of({}), Measurement{});
  EXPECT_DOUBLE_EQ((Measurement{10, 9, 12, 5}).spread(), 0.3);
  EXPECT_EQ(Measurement{}.spread(), 0);
}

TEST(Sample, TakesAFewSamplesHoweverLittleTimeThereIs) {
  int calls = 0;
  const Measurement measured = sample(Seconds(0), [&] { return static_cast<double>(++calls); });
  EXPECT_EQ(measured.samples, kFewestSamples);
  EXPECT_EQ(calls, kFewestSamples + 1);  // the first one warms up
  EXPECT_EQ(measured.median, 3);
}

TEST(Sample, IsBoundedInNumber) {
  // Warm-up has no such bound, but a time.
  EXPECT_EQ(sample(Seconds(0.2), [] { return 1.0; }).samples, kMostSamples);
}

TEST(Sample, EndsSoonAfterItsTime) {
  const double ns = time_ns([] {
    sample(Seconds(0.05), [] {
      return time_ns([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    });
  });
  EXPECT_GE(ns, 0.05e9);
  EXPECT_LT(ns, 5e9);
}

TEST(MeasureConcurrently, CollectsTheSamplesOfAllThreadsAtOnce) {
  std::atomic<int> ready = 0;
  std::atomic<int> fewest_ready = 1'000;
  const Measurement measured =
      measure_concurrently(3, Seconds(0), [&]() -> std::function<double()> {
        ++ready;
        return [&] {
          if (ready < fewest_ready) fewest_ready = ready.load();
          return 2.5;
        };
      });
  EXPECT_EQ(measured, (Measurement{2.5, 2.5, 2.5, 3 * kFewestSamples}));
  EXPECT_EQ(fewest_ready, 3);  // nobody worked before all were there
}

TEST(MeasureConcurrently, RethrowsTheFailureOfOneThreadAndWaitsForNone) {
  std::atomic<int> made = 0;
  const auto fails_to_start = [&]() -> std::function<double()> {
    if (++made == 2) throw std::runtime_error("no memory");
    return [] { return 1.0; };
  };
  EXPECT_THROW(measure_concurrently(4, Seconds(0), fails_to_start), std::runtime_error);
  const auto fails_at_work = []() -> std::function<double()> {
    return []() -> double { throw ConfigError("at work"); };
  };
  EXPECT_THROW(measure_concurrently(2, Seconds(0), fails_at_work), ConfigError);
}

TEST(AddVectors, AddsEveryElement) {
  std::vector<float> sum(1'003, 1.0f), part(sum.size());
  std::iota(part.begin(), part.end(), 0.0f);
  add_vectors(sum.data(), part.data(), sum.size());
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], 1.0f + static_cast<float>(i));
}

TEST(MatrixKernel, MultipliesForReal) {
  MatrixKernel kernel;
  const int64_t operations = kernel.run();
  kernel.run();
  EXPECT_EQ(kernel.runs(), 2);
  EXPECT_EQ(operations, 2 * 32 * 32 * 128);  // rows, depth, columns
  EXPECT_EQ(kernel.first_element(), 2.0f);   // every product adds 32 times 1/32
}

TEST(HandOver, AnswersWithAndWithoutACopy) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{3'000'000}}) {
    HandOver pair(bytes);
    for (int i = 0; i < 5; ++i) {
      EXPECT_GT(pair.exchange_ns(HandOver::Copy::No), 0);
      EXPECT_GT(pair.exchange_ns(HandOver::Copy::Yes), 0);
    }
  }
}

TEST(HandOver, EndsItsThreadUnused) { HandOver pair(8); }

bool has_child() { return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

TEST(TcpPeer, TakesMessagesOfAllSizesAndLeavesNoProcess) {
  {
    TcpPeer peer(3'000'000);
    for (const size_t bytes :
         {TcpPeer::kLeastMessageBytes, size_t{9}, size_t{65'536}, size_t{3'000'000}}) {
      EXPECT_GT(peer.exchange_ns(bytes), 0) << bytes;
    }
    EXPECT_TRUE(has_child());
    EXPECT_THROW(peer.exchange_ns(3'000'001), InternalError);
    EXPECT_THROW(peer.exchange_ns(0), InternalError);
  }
  EXPECT_FALSE(has_child());
}

TEST(TcpPeer, SeveralLiveAtOnce) {
  TcpPeer first(1'000), second(1'000);
  EXPECT_GT(second.exchange_ns(1'000), 0);
  EXPECT_GT(first.exchange_ns(1'000), 0);
}

TEST(Machine, HasCoresMemoryAndAPrintableName) {
  const Machine machine = this_machine();
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, 1'000'000);
  EXPECT_FALSE(machine.processor.empty());
  for (const char c : machine.processor) EXPECT_TRUE(c >= 0x20 && c <= 0x7e);
}

TEST(Machine, ReadsMemoryLimitsOfContainers) {
  EXPECT_EQ(parse_memory_limit("1073741824"), 1'073'741'824);
  EXPECT_EQ(parse_memory_limit("1073741824\n"), 1'073'741'824);
  for (const char* none : {"max", "", "-1", "0", "99999999999999999999", "x"})
    EXPECT_EQ(parse_memory_limit(none), 0) << none;
}

}  // namespace
}  // namespace penstock::probe
