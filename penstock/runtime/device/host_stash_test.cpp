#include "penstock/runtime/device/host_stash.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <set>

#include "penstock/model/device/testing_other_device.h"

namespace penstock::runtime {
namespace {

using model::OtherDevices;
using model::Tensors;

const at::Device kGpu(at::kCUDA, 0);

/// How many of them are on the device, with memory.
int64_t with_memory(const std::vector<WeakStorage>& made, at::Device device) {
  std::set<const c10::StorageImpl*> found;
  for (const WeakStorage& weak : made) {
    const auto storage = weak.lock();
    if (storage && storage->device() == device && storage->data() != nullptr)
      found.insert(storage.get());
  }
  return static_cast<int64_t>(found.size());
}

int64_t living(const std::vector<WeakStorage>& made) {
  return std::count_if(made.begin(), made.end(),
                       [](const auto& storage) { return storage.use_count() > 0; });
}

struct Passes {
  at::Tensor weight;
  at::Tensor input;
  at::Tensor output;
  std::vector<WeakStorage> made;

  /// Of a chain that saves a product's operands, an exponential's result and a mask.
  explicit Passes(at::Device memory) {
    weight = at::linspace(-1, 1, 64).view({8, 8}).to(memory).set_requires_grad(true);
    input = at::linspace(0, 2, 64).view({8, 8}).to(memory);
    StashWatch watch;
    output = at::exp(at::mm(at::relu(at::mm(input, weight.t())), weight)).sum();
    made = watch.made();
  }
  at::Tensor gradient() const { return torch::autograd::grad({output}, {weight})[0].cpu(); }
};

}  // namespace

TEST(HostStash, WhatAForwardPassSavesGoesAndComesBack) {
  OtherDevices devices(1);
  WorkerDevice device(devices, kGpu);
  const at::Device memory = device.compute().memory();
  const at::Tensor expected = Passes(memory).gradient();
  const Passes passes(memory);
  StorageSet stays;
  add_storages(stays, Tensors{passes.output});
  HostStash stash(device, passes.made, stays);
  // Four matrices live on: two products, relu's result, the exponential's. relu's input does not.
  EXPECT_GE(stash.bytes(), 2 * 64 * 4);
  EXPECT_LE(stash.bytes(), 4 * 64 * 4);
  const auto count = [&] { return with_memory(passes.made, memory); };
  const int64_t moved = count();
  stash.drop();
  EXPECT_EQ(count(), 1);  // the output
  EXPECT_GT(moved, 2);
  EXPECT_NE(passes.weight.data_ptr(), nullptr);
  stash.load();
  stash.wait();
  EXPECT_EQ(count(), moved);
  EXPECT_TRUE(at::equal(passes.gradient(), expected));
}

TEST(HostStash, WatchesNotesWhatIsNewAlone) {
  const at::Tensor weight = at::ones({4, 4});
  StashWatch watch;
  const at::Tensor view = weight.t();
  at::Tensor same = weight.view({16});
  same.add_(1);
  EXPECT_EQ(living(watch.made()), 0);
  const at::Tensor product = at::mm(weight, view);
  const std::vector<WeakStorage> made = watch.made();
  EXPECT_GT(living(made), 0);
  for (const WeakStorage& storage : made) {
    const auto found = storage.lock();
    EXPECT_TRUE(!found || found.get() == product.storage().unsafeGetStorageImpl());
  }
}

TEST(HostStash, APausedWatchNotesNothing) {
  const at::Tensor weight = at::ones({4, 4});
  StashWatch watch;
  at::Tensor product;
  {
    const StashPause pause;
    product = at::mm(weight, weight);
  }
  EXPECT_EQ(living(watch.made()), 0);
  product = at::mm(weight, weight);
  EXPECT_GT(living(watch.made()), 0);
}

TEST(HostStash, NothingMovesOnTheHost) {
  OtherDevices devices(1);
  WorkerDevice device(devices, at::kCPU);
  const Passes passes(at::kCPU);
  HostStash stash(device, passes.made, {});
  EXPECT_EQ(stash.bytes(), 0);
  stash.load();
  stash.wait();
  EXPECT_GT(passes.gradient().abs().sum().item<float>(), 0);
}

}  // namespace penstock::runtime
