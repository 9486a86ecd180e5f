#include "penstock/runtime/fabric/local/tensor_exchange.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <thread>

#include "penstock/runtime/fabric/local/testing_wait.h"
#include "penstock/schedule/generate.h"

namespace penstock::runtime::testing {
namespace {

schedule::Schedule two_stage_schedule() {
  return lower(
      schedule::generate(plan::Strategy::OneFOneB, {.replicas = {1, 1},
                                                    .micro_batches = 4,
                                                    .accumulate = 1,
                                                    .policy = schedule::WeightPolicy::Stash}),
      schedule::chain_links(2));
}

Message forward_of(int micro_batch) {
  return {.from = StageId{0}, .to = StageId{1}, .micro_batch = MicroBatchId{micro_batch}};
}

TEST(TensorExchangeTest, MessagesAreFoundByNameNotByOrder) {
  TensorExchange exchange(two_stage_schedule(), 3);
  Wait wait = soon();
  for (const int b : {0, 1, 2})
    EXPECT_EQ(exchange.send(forward_of(b), {at::full({1}, b)}, wait), WaitResult::Ready);
  model::Tensors tensors;
  for (const int b : {2, 0, 1}) {
    ASSERT_EQ(exchange.receive(forward_of(b), tensors, wait), WaitResult::Ready);
    EXPECT_EQ(tensors[0].item<float>(), static_cast<float>(b));
  }
}

TEST(TensorExchangeTest, AFullChannelMakesTheSenderWaitAndCloseWakesIt) {
  TensorExchange exchange(two_stage_schedule(), 1);
  const auto send = [&](int b, int ms) {
    Wait wait = soon(ms);
    const WaitResult result = exchange.send(forward_of(b), {at::ones({1})}, wait);
    EXPECT_GE(wait.waited_ns, 0);
    return result;
  };
  EXPECT_EQ(send(0, 1000), WaitResult::Ready);
  EXPECT_EQ(send(1, 20), WaitResult::TimedOut);
  WaitResult blocked = WaitResult::Ready;
  std::thread sender([&]() { blocked = send(1, 20000); });
  exchange.close();
  sender.join();
  EXPECT_EQ(blocked, WaitResult::Closed);
}

}  // namespace
}  // namespace penstock::runtime::testing
