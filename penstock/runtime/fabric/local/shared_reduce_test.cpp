// Sums over the replicas of a stage, and what happens when a replica leaves while others are still
// at work.
#include "penstock/runtime/fabric/local/shared_reduce.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "penstock/runtime/fabric/local/testing_wait.h"
#include "penstock/runtime/gradient_buffer.h"

namespace penstock::runtime::testing {
namespace {

WaitResult sum_over(SharedReduce& reduce, int replica, Partials partials, model::Tensors& sums,
                    Wait& wait) {
  reduce.start(replica, std::move(partials));
  return reduce.finish(replica, sums, wait);
}

TEST(SharedReduceTest, SumsOverReplicasAndTreatsMissingGradientsAsZero) {
  constexpr int kReplicas = 3;
  SharedReduce reduce(kReplicas, 3);
  std::vector<model::Tensors> sums(kReplicas);
  std::vector<std::thread> threads;
  for (int r = 0; r < kReplicas; ++r) {
    threads.emplace_back([&, r]() {
      Partials partials = {
          {r, {at::full({5}, r + 1), r == 1 ? at::ones({2}) : at::Tensor(), at::Tensor()}}};
      Wait wait = soon();
      EXPECT_EQ(sum_over(reduce, r, std::move(partials), sums[static_cast<size_t>(r)], wait),
                WaitResult::Ready);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& sum : sums) {
    EXPECT_EQ(sum[0].sum().item<float>(), 30.0f);
    EXPECT_EQ(sum[1].sum().item<float>(), 2.0f);
    EXPECT_FALSE(sum[2].defined());
  }
}

TEST(SharedReduceTest, ReplicasAddTheirGroupsInTheOrderOfOne) {
  const std::vector<float> values = {1e8f, 1.0f, -1e8f, 3.0f, 1e-3f, 1e8f};
  const auto partials_of = [&](int64_t replica, int64_t replicas) {
    Partials partials;
    for (int64_t g = replica; g < 6; g += replicas)
      partials.push_back({g, {at::full({7}, values[static_cast<size_t>(g)])}});
    return partials;
  };
  const at::Tensor expected = sum_of(partials_of(0, 1), 1)[0];
  for (const int replicas : {2, 3, 6}) {
    SharedReduce reduce(replicas, 1);
    std::vector<std::thread> threads;
    for (int r = 0; r < replicas; ++r) {
      threads.emplace_back([&, r]() {
        Wait wait = soon();
        model::Tensors sums;
        EXPECT_EQ(sum_over(reduce, r, partials_of(r, replicas), sums, wait), WaitResult::Ready);
        EXPECT_TRUE(sums.at(0).equal(expected));
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

/// The sums that ranks get where gradients travel in 16 bits.
TEST(SharedReduceTest, RoundsEveryGroupAndTheSum) {
  const auto partials_of = [](int64_t replica, int64_t replicas) {
    Partials partials;
    for (int64_t g = replica; g < 6; g += replicas)
      partials.push_back({g, {at::arange(1, 38) / (7.0 * static_cast<double>(g + 1))}});
    return partials;
  };
  for (const auto& [precision, type] :
       {std::pair(FloatType::BFloat16, at::kBFloat16), std::pair(FloatType::Float16, at::kHalf)}) {
    at::Tensor sum = at::zeros({37});
    for (const GroupGradients& group : partials_of(0, 1))
      sum = sum + group.sums[0].to(type).to(at::kFloat);
    const at::Tensor expected = sum.to(type).to(at::kFloat);
    EXPECT_FALSE(expected.equal(sum));
    for (const int replicas : {2, 3, 6}) {
      SharedReduce reduce(replicas, 1, precision);
      std::vector<std::thread> threads;
      for (int r = 0; r < replicas; ++r) {
        threads.emplace_back([&, r]() {
          Wait wait = soon();
          model::Tensors sums;
          EXPECT_EQ(sum_over(reduce, r, partials_of(r, replicas), sums, wait), WaitResult::Ready);
          EXPECT_TRUE(sums.at(0).equal(expected));
        });
      }
      for (auto& thread : threads) thread.join();
    }
  }
}

TEST(SharedReduceTest, AMissingReplicaIsATimeout) {
  SharedReduce reduce(2, 1);
  model::Tensors sums;
  Wait wait = soon(20);
  EXPECT_EQ(sum_over(reduce, 0, {{0, {at::ones({2})}}}, sums, wait), WaitResult::TimedOut);
  EXPECT_GT(wait.waited_ns, 0);
}

TEST(BarrierTest, WhoeverLeavesAtTheDeadlineClosesIt) {
  Barrier barrier(2);
  Wait wait = soon(20);
  EXPECT_EQ(barrier.wait(wait), WaitResult::TimedOut);
  EXPECT_EQ(barrier.wait(wait), WaitResult::Closed);

  Barrier three(3);
  std::thread other([&three]() {
    Wait long_wait = soon(20'000);
    EXPECT_EQ(three.wait(long_wait), WaitResult::Closed);
  });
  Wait short_wait = soon(50);
  EXPECT_EQ(three.wait(short_wait), WaitResult::TimedOut);
  other.join();
}

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
WeakStorage weak(const at::Tensor& tensor) { return tensor.storage().getWeakStorageImpl(); }

TEST(SharedReduceTest, WhoComesAfterATimeoutFindsItClosed) {
  SharedReduce reduce(2, 1);
  model::Tensors sums;
  Wait wait = soon(20);
  at::Tensor part = at::ones({2});
  const WeakStorage memory = weak(part);
  EXPECT_EQ(sum_over(reduce, 0, {{0, {std::move(part)}}}, sums, wait), WaitResult::TimedOut);
  EXPECT_FALSE(memory.expired());
  EXPECT_EQ(sum_over(reduce, 1, {{1, {at::ones({2})}}}, sums, wait), WaitResult::Closed);
  EXPECT_TRUE(sums.empty());
}

TEST(SharedReduceTest, NothingIsKeptAfterASum) {
  SharedReduce reduce(1, 1);
  model::Tensors sums;
  Wait wait = soon();
  at::Tensor part = at::ones({2});
  const WeakStorage memory = weak(part);
  EXPECT_EQ(sum_over(reduce, 0, {{0, {std::move(part)}}}, sums, wait), WaitResult::Ready);
  EXPECT_FALSE(memory.expired());
  sums.clear();
  EXPECT_TRUE(memory.expired());
}

/// Holds the thread that makes it inside its first in-place addition until it is let go.
class Halt {
 public:
  Halt(std::promise<void>& there, std::shared_future<void> go)
      : there_(&there), go_(std::move(go)) {
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) {
          if (std::string(function.name()) == "aten::add_") current_->stop();
          return std::unique_ptr<at::ObserverContext>();
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Halt() { at::removeCallback(handle_); }

 private:
  void stop() {
    if (there_ == nullptr) return;
    there_->set_value();
    there_ = nullptr;
    go_.wait_for(std::chrono::seconds(20));
  }
  static inline thread_local Halt* current_ = nullptr;
  std::promise<void>* there_;
  std::shared_future<void> go_;
  at::CallbackHandle handle_{};
};

/// Replica 0 has added up its slice and leaves the second barrier while replica 1 is in the middle
/// of its own.
void leave_between_the_barriers(bool by_timeout) {
  SharedReduce reduce(2, 3);
  std::promise<void> halted, left;
  const std::shared_future<void> go = left.get_future().share();
  std::thread slow([&]() {
    const Halt halt(halted, go);
    model::Tensors sums;
    Wait wait = soon(20'000);
    Partials partials = {{1, {at::ones({8}), at::ones({8}), at::ones({8})}}};
    EXPECT_EQ(sum_over(reduce, 1, std::move(partials), sums, wait), WaitResult::Closed);
    EXPECT_TRUE(sums.empty());
  });
  at::Tensor part = at::ones({8});
  const WeakStorage memory = weak(part);
  Partials partials = {{0, {at::ones({8}), at::ones({8}), std::move(part)}}};
  std::thread fast([&]() {
    model::Tensors sums;
    Wait wait = soon(by_timeout ? 500 : 20'000);
    const WaitResult result = sum_over(reduce, 0, std::move(partials), sums, wait);
    EXPECT_EQ(result, by_timeout ? WaitResult::TimedOut : WaitResult::Closed);
  });
  halted.get_future().wait();
  if (!by_timeout) reduce.close();
  fast.join();
  partials.clear();
  // The slow one has not come to this tensor yet.
  EXPECT_FALSE(memory.expired());
  left.set_value();
  slow.join();
}

TEST(SharedReduceTest, AFailureLeavesOthersTheGradientsThatTheyAreReading) {
  leave_between_the_barriers(false);
}

TEST(SharedReduceTest, ATimeoutLeavesOthersTheGradientsThatTheyAreReading) {
  leave_between_the_barriers(true);
}

}  // namespace
}  // namespace penstock::runtime::testing
