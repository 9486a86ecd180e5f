// Whole runs whose ranks hand tensors from GPU to GPU, on emulated GPUs: the bits are those of one
// process, no stream reads what another one may not have written, and who fails holds nobody.
#include "penstock/runtime/device/device_links.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "penstock/model/device/testing_other_device.h"
#include "penstock/runtime/device/testing_stream_checker.h"
#include "penstock/runtime/fabric/forwarding.h"
#include "penstock/runtime/fabric/testing_ranks.h"
#include "penstock/runtime/test_support.h"
#include "penstock/runtime/testing_team_model.h"
#include "penstock/util/error.h"

namespace penstock::runtime::testing {
namespace {

using model::kFirst;
using model::kSecond;
using plan::Strategy;
using ::testing::HasSubstr;

/// Of one link: what the sender's stream has copied out.
struct Wire {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<at::Tensor, model::EventPtr>> parts;
  std::function<void()> on_receive;
  int received = 0;  ///< or asked for
  int sent = 0;
};

/// What the ends of a test's links have done, and what they are to do.
struct Counts {
  std::atomic<int> links = 0;
  std::atomic<int> sent = 0;
  std::atomic<int64_t> bytes = 0;
  std::atomic<int> given_up = 0;
  std::atomic<bool> breaks = false;  ///< the library fails from now on
};

/// As a library of GPUs does it: matched by order, queued on the stream.
class EmulatedEnd final : public LinkEnd {
 public:
  EmulatedEnd(std::shared_ptr<Wire> wire, std::shared_ptr<model::DeviceStream> stream,
              Counts& counts)
      : wire_(std::move(wire)), stream_(std::move(stream)), counts_(counts) {
    ++counts_.links;
  }

  void send(const model::Tensors& tensors) override {
    if (counts_.breaks) throw TransportError("the cable is broken");
    const std::lock_guard lock(wire_->mutex);
    EXPECT_LT(wire_->sent, wire_->received) << "nobody has asked for it yet";
    ++wire_->sent;
    for (const at::Tensor& tensor : tensors) {
      EXPECT_TRUE(tensor.is_contiguous());
      EXPECT_GT(tensor.numel(), 0);
      at::Tensor copy = stream_->allocate_like(tensor);
      stream_->copy(copy, tensor);
      wire_->parts.emplace_back(std::move(copy), stream_->record());
      ++counts_.sent;
      counts_.bytes += static_cast<int64_t>(tensor.nbytes());
    }
    wire_->changed.notify_all();
  }
  void receive(const model::Tensors& places) override {
    {
      const std::lock_guard lock(wire_->mutex);
      ++wire_->received;
    }
    wire_->on_receive();
    for (const at::Tensor& place : places) {
      std::unique_lock lock(wire_->mutex);
      if (!wire_->changed.wait_for(lock, std::chrono::seconds(10),
                                   [this] { return !wire_->parts.empty(); })) {
        throw TransportError("nothing has been sent");
      }
      const auto [part, ready] = wire_->parts.front();
      wire_->parts.pop_front();
      if (part.sizes() != place.sizes()) throw TransportError("another tensor's turn");
      stream_->wait(ready);
      stream_->copy(place, part);
    }
  }
  void check() override {
    if (counts_.breaks) throw TransportError("the cable is broken");
  }
  void give_up() noexcept override { ++counts_.given_up; }

 private:
  std::shared_ptr<Wire> wire_;
  std::shared_ptr<model::DeviceStream> stream_;
  Counts& counts_;
};

/// The wires between all ranks of a test, by name.
class Wires {
 public:
  std::shared_ptr<Wire> get(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& wire = wires_[name];
    if (!wire) wire = std::make_shared<Wire>();
    return wire;
  }
  Counts counts;

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Wire>> wires_;
};

/// A rank whose workers have GPUs, linked to those of the others.
class LinkedWorld final : public ForwardingWorld {
 public:
  LinkedWorld(World& inner, std::vector<at::Device> device_of_worker, Wires& wires)
      : ForwardingWorld(inner), site_(inner.site()), wires_(wires) {
    site_.device_of_worker = std::move(device_of_worker);
  }
  const Site& site() const override { return site_; }
  bool has_links() const override { return true; }
  std::unique_ptr<LinkEnd> link(const LinkPlace& place, Wait&) override {
    const std::string name = std::to_string(next_++);
    if (place.from != site_.rank && place.to != site_.rank) return nullptr;
    const std::shared_ptr<Wire> wire = wires_.get(name);
    EXPECT_EQ(place.on_receive != nullptr, place.from == site_.rank);
    if (place.on_receive) wire->on_receive = place.on_receive;
    return std::make_unique<EmulatedEnd>(wire, place.stream, wires_.counts);
  }

 private:
  Site site_;
  Wires& wires_;
  int next_ = 0;
};

RankRig mesh() {
  return {"mesh", [](const std::vector<int>& ranks) { return make_mesh_ranks(ranks); }};
}

std::vector<at::Device> alternating(size_t workers) {
  std::vector<at::Device> devices;
  for (size_t w = 0; w < workers; ++w) devices.push_back(w % 2 == 0 ? kFirst : kSecond);
  return devices;
}

/// Returns the bytes that went by links.
int64_t expect_same_across(const std::vector<int>& rank_of_worker, Case setup,
                           const model::Model& model = skip_model(0.1)) {
  SCOPED_TRACE(plan::to_string(setup.kind));
  const Trained expected = train(model, setup);
  CheckedDevices devices(2);
  setup.devices = &devices;
  Wires wires;
  std::vector<Trained> parts(Site{.rank_of_worker = rank_of_worker}.num_ranks());
  const auto failures = on_ranks(mesh(), rank_of_worker, [&](World& world, size_t rank) {
    LinkedWorld linked(world, alternating(rank_of_worker.size()), wires);
    parts[rank] = train(model, setup, &linked);
  });
  EXPECT_THAT(failures, ::testing::Each(""));
  if (::testing::Test::HasFailure()) return 0;
  Trained all = parts.front();
  for (const Trained& part : parts) {
    for (size_t l = 0; l < part.layers.size(); ++l) {
      if (part.layers[l].here) all.layers[l] = part.layers[l];
    }
  }
  expect_same_bits(all, expected);
  EXPECT_THAT(devices.violations(), ::testing::IsEmpty());
  EXPECT_GT(wires.counts.links, 0);
  EXPECT_GT(wires.counts.sent, 20);
  return wires.counts.bytes;
}

constexpr int64_t kSamples = int64_t{12} * 6;

TEST(DeviceLinks, RanksTrainAsOneProcessDoes) {
  for (const Strategy kind : {Strategy::GPipe, Strategy::OneFOneBFlush, Strategy::ZbH1}) {
    expect_same_across({0, 1}, {.kind = kind, .replicas = {1, 1}, .parts = 4, .samples = kSamples});
  }
  expect_same_across({0, 1, 0}, {.kind = Strategy::OneFOneB,
                                 .replicas = {1, 1, 1},
                                 .policy = schedule::WeightPolicy::Stash,
                                 .parts = 1,
                                 .samples = kSamples});
}

TEST(DeviceLinks, SeveralStagesOfAWorkerHaveLinksOfTheirOwn) {
  for (const Strategy kind : {Strategy::Interleaved, Strategy::ZbV}) {
    expect_same_across(
        {0, 1},
        {.kind = kind, .replicas = {1, 1, 1, 1}, .parts = 4, .samples = kSamples, .chunks = 2});
  }
  expect_same_across(
      {0, 1}, {.kind = Strategy::Chimera, .replicas = {2, 2}, .parts = 4, .samples = kSamples});
}

/// Messages and sums of gradients go by links; what members give each other, through the hosts.
TEST(DeviceLinks, MembersOfTeamsTrainAsOneProcessDoes) {
  const TeamModel net = spread(two_stages(/*tied=*/true), 2);
  for (const std::vector<int>& ranks :
       {std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 1, 2, 2, 3, 3}}) {
    expect_same_across(ranks,
                       {.kind = Strategy::OneFOneBFlush,
                        .replicas = {2, 2},
                        .parts = 4,
                        .samples = kSamples,
                        .norm = true,
                        .max_grad_norm = 0.05,
                        .stage_of_layer = net.stage_of_layer,
                        .teams = {2, 2}},
                       net.model);
  }
}

TEST(DeviceLinks, ReplicasSendToEachOther) {
  expect_same_across({0, 0, 1}, {.kind = Strategy::OneFOneBFlush,
                                 .replicas = {2, 1},
                                 .parts = 4,
                                 .samples = kSamples,
                                 .norm = true,
                                 .max_grad_norm = 0.05});
}

TEST(DeviceLinks, ReplicasAddTheirGradientsFromGpuToGpu) {
  int64_t weights = 0;
  const model::Model model = skip_model(0.1);
  for (int32_t l = 0; l < model.graph().num_layers(); ++l) {
    for (const model::ParameterSpec& weight : model.layer(LayerId{l}).parameters())
      weights += at::empty(weight.shape).numel();
  }
  Case setup{.kind = Strategy::DataParallel, .replicas = {3}, .parts = 3, .samples = kSamples};
  // A reduce-scatter and an all-gather of 3 replicas in 6 mini-batches, each weight tensor and the
  // whole rounded up a little.
  const int64_t least = int64_t{6} * 2 * (3 - 1) * weights * 4;
  const int64_t bytes = expect_same_across({0, 1, 2}, setup);
  EXPECT_GE(bytes, least);
  EXPECT_LE(bytes, least + int64_t{6} * 2 * (3 - 1) * 20 * 16);
  EXPECT_LT(expect_same_across({0, 1, 1}, setup), bytes);
  setup.gradient_precision = FloatType::BFloat16;
  EXPECT_EQ(expect_same_across({0, 1, 2}, setup), bytes / 2);
}

TEST(DeviceLinks, ReplicasGiveEachOtherTheirSharesOfTheWeights) {
  for (const bool norm : {false, true}) {
    expect_same_across({0, 1}, {.kind = Strategy::DataParallel,
                                .replicas = {2},
                                .parts = 2,
                                .samples = kSamples,
                                .optimizer = gentle_adam(),
                                .learning_rate = 0.01,
                                .norm = norm,
                                .max_grad_norm = norm ? 0.05 : 0.0,
                                .shard_optimizer = {true}});
  }
}

/// Two ranks of one worker each.
struct Pair {
  explicit Pair(model::Devices& devices) : worlds(make_local_ranks({0, 1})) {
    for (size_t r = 0; r < 2; ++r) {
      linked.push_back(std::make_unique<LinkedWorld>(*worlds[r], alternating(2), wires));
      links.push_back(std::make_unique<DeviceLinks>(*linked[r]));
      of_workers.emplace_back(2);
      of_workers[r][r] = std::make_unique<WorkerDevice>(devices, alternating(2)[r]);
    }
  }
  /// On both ranks; what each of them said.
  std::vector<std::string> open(const schedule::Schedule& schedule) {
    std::vector<std::string> said(2);
    std::vector<std::jthread> ranks;
    for (size_t r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        try {
          links[r]->open(schedule, of_workers[r], {}, std::chrono::seconds(10));
        } catch (const ConfigError& error) {
          said[r] = error.what();
        }
      });
    }
    ranks.clear();
    return said;
  }

  Wires wires;
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<std::unique_ptr<LinkedWorld>> linked;
  std::vector<std::vector<std::unique_ptr<WorkerDevice>>> of_workers;
  std::vector<std::unique_ptr<DeviceLinks>> links;
};

schedule::Schedule two_messages(std::vector<int> received) {
  using schedule::Op;
  schedule::Schedule schedule{
      .kind = "custom", .shape = {.replicas = {1, 1}, .micro_batches = 2}, .lowered = true};
  schedule.workers.resize(2);
  for (const int m : {0, 1}) {
    schedule.workers[0].push_back({.op = Op::SendForward,
                                   .stage = StageId{0},
                                   .micro_batch = MicroBatchId{m},
                                   .peer = StageId{1}});
    schedule.workers[1].push_back({.op = Op::RecvForward,
                                   .stage = StageId{1},
                                   .micro_batch = MicroBatchId{received[static_cast<size_t>(m)]},
                                   .peer = StageId{0}});
  }
  return schedule;
}

Message forward(int micro_batch) {
  return {false, StageId{0}, StageId{1}, MicroBatchId{micro_batch}};
}

TEST(DeviceLinks, UndefinedAndEmptyTensorsArriveAsTheyAre) {
  CheckedDevices devices(2);
  Pair pair(devices);
  ASSERT_THAT(pair.open(two_messages({0, 1})), ::testing::Each(""));
  EXPECT_TRUE(pair.links[0]->carries(forward(0)));
  const std::vector<TensorLayout> layout{{{2, 3}}, {{0, 4}}, {{5}}, {{2}, at::kLong}};
  const model::Tensors tensors{at::arange(6, at::kFloat).view({3, 2}).t(), at::empty({0, 4}),
                               at::Tensor(), at::arange(2, at::kLong)};
  const at::Tensor defined = pair.links[0]->send(forward(0), tensors, layout);
  EXPECT_TRUE(defined.equal(at::tensor({1, 1, 0, 1}, at::kByte)));
  EXPECT_EQ(mask_layout(layout.size()).front(), (TensorLayout{{4}, at::kByte}));
  EXPECT_EQ(pair.wires.counts.sent, 0);
  const model::Tensors arrived = pair.links[1]->receive(forward(0), defined, layout);
  EXPECT_EQ(pair.wires.counts.sent, 2);
  ASSERT_EQ(arrived.size(), tensors.size());
  EXPECT_FALSE(arrived[2].defined());
  for (const size_t i : {0, 1, 3}) EXPECT_TRUE(arrived[i].equal(tensors[i])) << i;
}

TEST(DeviceLinks, LinksAreMadeOnce) {
  CheckedDevices devices(2);
  Pair pair(devices);
  pair.open(two_messages({0, 1}));
  pair.open(two_messages({0, 1}));
  EXPECT_EQ(pair.wires.counts.links, 2);  // both ends of one
}

TEST(DeviceLinks, MessagesTakenInAnotherOrderAreRefused) {
  CheckedDevices devices(2);
  Pair pair(devices);
  EXPECT_THAT(pair.open(two_messages({1, 0})),
              ::testing::Each(HasSubstr("micro-batch 0 is number 1 of those sent, and of those "
                                        "taken micro-batch 1")));
}

TEST(DeviceLinks, AllRanksRefuseAWorkerOnTheCpu) {
  CheckedDevices devices(2);
  Pair pair(devices);
  pair.of_workers[1][1] = std::make_unique<WorkerDevice>(devices, at::kCPU);
  EXPECT_THAT(pair.open(two_messages({0, 1})),
              ::testing::Each(HasSubstr("worker 1 is on the CPU")));
}

/// A fabric of which only this is asked.
class Failing final : public ForwardingFabric {
 public:
  Failing() : ForwardingFabric(nullptr) {}
  bool failed() const override { return failed_; }
  void fail(std::exception_ptr) noexcept override { failed_ = true; }
  std::atomic<bool> failed_ = false;
};

/// Whether so many ends of links are given up before long.
bool are_given_up(const Pair& pair, int ends) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (pair.wires.counts.given_up < ends && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return pair.wires.counts.given_up == ends;
}

TEST(DeviceLinks, ARunThatFailsEndsWhatIsQueued) {
  CheckedDevices devices(2);
  Pair pair(devices);
  pair.open(two_messages({0, 1}));
  Failing fabric;
  { const LinkWatch watch(*pair.links[0], fabric); }
  EXPECT_EQ(pair.wires.counts.given_up, 0);
  fabric.failed_ = true;
  const LinkWatch watch(*pair.links[0], fabric);
  EXPECT_TRUE(are_given_up(pair, 1));
}

/// Otherwise the gradients of a step would stay until the next step.
TEST(DeviceLinks, WhatHasLeftIsLetGoWithoutAnotherMessage) {
  model::OtherDevices devices(2);
  Pair pair(devices);
  ASSERT_THAT(pair.open(two_messages({0, 1})), ::testing::Each(""));
  const std::vector<TensorLayout> layout{{{4}}};
  at::Tensor tensor = pair.of_workers[0][0]->to_device(at::ones({4}));
  const auto memory = tensor.storage().getWeakStorageImpl();
  const at::Tensor defined = pair.links[0]->send(forward(0), {std::move(tensor)}, layout);
  tensor.reset();
  pair.links[1]->receive(forward(0), defined, layout);
  EXPECT_FALSE(memory.expired());
  Failing fabric;
  const LinkWatch watch(*pair.links[0], fabric);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!memory.expired() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(memory.expired());
}

TEST(DeviceLinks, ALinkThatBreaksFailsTheRun) {
  CheckedDevices devices(2);
  Pair pair(devices);
  pair.open(two_messages({0, 1}));
  Failing fabric;
  const LinkWatch watch(*pair.links[0], fabric);
  pair.wires.counts.breaks = true;
  EXPECT_TRUE(are_given_up(pair, 1));
  EXPECT_TRUE(fabric.failed());
}

/// After a failure a pipeline makes new links.
TEST(DeviceLinks, APipelineRunsAgainAfterAFailure) {
  const model::Model model = skip_model();
  Case setup{.kind = Strategy::GPipe, .replicas = {1, 1}, .parts = 4, .samples = kSamples};
  CheckedDevices devices(2);
  setup.devices = &devices;
  Wires wires;
  const auto failures = on_ranks(mesh(), {0, 1}, [&](World& world, size_t rank) {
    LinkedWorld linked(world, alternating(2), wires);
    const auto optimizer = model::make_optimizer(setup.optimizer);
    const RandomBatches batches(setup.samples, setup.mini_batch, setup.parts, 8, 4, setup.sample);
    Pipeline pipeline(model, cut(model, 2), setup.replicas, *optimizer,
                      {.world = &linked, .devices = &devices});
    const schedule::Schedule schedule = make_schedule(setup, batches, pipeline);
    std::atomic<int> actions = 0;
    RunOptions options{.learning_rate = [](int64_t) { return 0.05; }};
    options.on_action = [&](WorkerId, const schedule::TimelineEvent&) {
      if (rank == 1 && ++actions == 20) throw std::runtime_error("stumbled");
    };
    EXPECT_THROW(pipeline.run(schedule, batches, options), RuntimeError);
    options.on_action = {};
    EXPECT_EQ(pipeline.run(schedule, batches, options).mini_batches.size(), 6);
  });
  EXPECT_THAT(failures, ::testing::Each(""));
  EXPECT_EQ(wires.counts.links, 8);
}

}  // namespace
}  // namespace penstock::runtime::testing
