#include "penstock/plan/machine_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "penstock/util/error.h"

namespace penstock::plan {
namespace {

constexpr int64_t kGB = 1'000'000'000;

/// At 1 GB/s a byte takes 1 ns.
cluster::Machine equal_links(int switches) {
  return {.switches = switches,
          .device_bytes_per_s = kGB,
          .switch_bytes_per_s = kGB,
          .cross_bytes_per_s = kGB};
}

MachineSum sum_by(MachineWay way, const cluster::Machine& machine,
                  const MachineReplicas& replicas) {
  for (const MachineSum& sum : machine_sums(machine, replicas)) {
    if (sum.way == way) return sum;
  }
  ADD_FAILURE() << "no way " << to_string(way);
  return {};
}

TEST(MachineSum, FiguresOfThePaperForTwoSwitchesOfFour) {
  const MachineReplicas all{.devices = 8, .replicas = 8};
  const MachineSum ring = sum_by(MachineWay::Ring, equal_links(2), all);
  EXPECT_DOUBLE_EQ(ring.switch_ns, 7.0 / 4);
  EXPECT_DOUBLE_EQ(ring.device_ns, 7.0 / 4);
  const MachineSum assisted = sum_by(MachineWay::CpuAssisted, equal_links(2), all);
  EXPECT_DOUBLE_EQ(assisted.switch_ns, 1);
  EXPECT_DOUBLE_EQ(assisted.device_ns, 7.0 / 4);
  // 80 Gbit/s across switches and 105 within: 23.7 % shorter in the paper.
  cluster::Machine machine = equal_links(2);
  machine.device_bytes_per_s = machine.switch_bytes_per_s = 105 * kGB / 8;
  machine.cross_bytes_per_s = 80 * kGB / 8;
  const MachineSum best = best_machine_sum(machine, all);
  EXPECT_EQ(best.way, MachineWay::CpuAssisted);
  EXPECT_NEAR(1 - best.ns() / sum_by(MachineWay::Ring, machine, all).ns(), 0.238, 0.001);
}

// A part x of the gradients goes to the CPU unreduced: then a switch's link carries l x + y, and a
// device's x + y (2l-1)/l, with y = 1 - x.
TEST(MachineSum, CpuAssistedIsNearTheBestMixWithUnreducedGradients) {
  double best = 2;
  double best_x = 0;
  for (int i = 0; i <= 1000; ++i) {
    const double x = i / 1000.0;
    const double time = std::max(4 * x + 1 - x, x + (1 - x) * 7 / 4);
    if (time < best) std::tie(best, best_x) = std::pair(time, x);
  }
  EXPECT_NEAR(best_x, 0.2, 1e-9);
  const double assisted =
      sum_by(MachineWay::CpuAssisted, equal_links(2), {.devices = 8, .replicas = 8}).ns();
  EXPECT_NEAR(assisted / best, 1.094, 0.001);
}

TEST(MachineSum, WithNvlinkOneDeviceAwayFromTheNetworkCardKeepsItsLinkFree) {
  cluster::Machine machine = equal_links(4);
  machine.nvlink_bytes_per_s = 12 * kGB;
  machine.network_card = 0;
  const MachineReplicas all{.devices = 8, .replicas = 8, .network = 1.5};
  const MachineSum scattered = sum_by(MachineWay::Nvlink, machine, all);
  EXPECT_DOUBLE_EQ(scattered.card_share, 1.0 / 4);
  EXPECT_DOUBLE_EQ(scattered.ns(), 1.75);
  const MachineSum best = best_machine_sum(machine, all);
  EXPECT_EQ(best.way, MachineWay::NvlinkRoot);
  EXPECT_EQ(best.root, 2);
  EXPECT_EQ(best.card_share, 0);
  EXPECT_DOUBLE_EQ(best.ns(), 1.5);
  // With lanes of its own the network card has no part in it.
  machine.network_card = -1;
  EXPECT_EQ(best_machine_sum(machine, all).way, MachineWay::Nvlink);
  // Behind another switch, or the only one.
  machine.network_card = 1;
  EXPECT_EQ(best_machine_sum(machine, all).root, 0);
  machine.switches = 1;
  machine.network_card = 0;
  EXPECT_DOUBLE_EQ(sum_by(MachineWay::NvlinkRoot, machine, all).ns(), 2.5);
}

TEST(MachineSum, ReplicasBehindOneSwitchDoNotCross) {
  cluster::Machine machine = equal_links(2);
  machine.cross_bytes_per_s = kGB / 10;
  const MachineReplicas four{.devices = 8, .replicas = 4, .one_switch = true};
  EXPECT_EQ(best_machine_sum(machine, four).way, MachineWay::Ring);
  EXPECT_DOUBLE_EQ(best_machine_sum(machine, four).ns(), 1.5);
}

/// What each link carries per direction when every transfer is written out, over a byte of
/// gradients; links are named by kind and number.
class Flows {
 public:
  explicit Flows(int under_switch) : under_switch_(under_switch) {}

  void between_devices(int from, int to, double bytes) {
    up_["device"][from] += bytes;
    down_["device"][to] += bytes;
    if (from / under_switch_ == to / under_switch_) return;
    up_["switch"][from / under_switch_] += bytes;
    down_["switch"][to / under_switch_] += bytes;
  }
  void over_nvlink(int from, int to, double bytes) {
    up_["nvlink"][from] += bytes;
    down_["nvlink"][to] += bytes;
  }
  void to_host_and_back(int device, double bytes) {
    for (auto* way : {&up_, &down_}) {
      (*way)["device"][device] += bytes;
      (*way)["switch"][device / under_switch_] += bytes;
    }
  }

  double most(const char* kind) const {
    double most = 0;
    for (const auto* way : {&up_, &down_}) {
      const auto links = way->find(kind);
      if (links == way->end()) continue;
      for (const auto& [link, bytes] : links->second) most = std::max(most, bytes);
    }
    return most;
  }
  double through_switch(int number) const {
    double most = 0;
    for (const auto* way : {&up_, &down_}) {
      const auto links = way->find("switch");
      if (links != way->end() && links->second.contains(number))
        most = std::max(most, links->second.at(number));
    }
    return most;
  }

 private:
  using Bytes = std::map<std::string, std::map<int, double>>;
  int under_switch_;
  Bytes up_;
  Bytes down_;
};

template <class Move>
void around(int devices, Move move) {
  if (devices == 1) return;
  for (int step = 0; step < 2 * (devices - 1); ++step) {
    for (int device = 0; device < devices; ++device)
      move(device, (device + 1) % devices, 1.0 / devices);
  }
}

Flows flows_of(MachineWay way, int p, int l, bool leaves, int root) {
  Flows flows(l);
  const int d = p * l;
  switch (way) {
    case MachineWay::Ring:
      around(d, [&](int from, int to, double bytes) { flows.between_devices(from, to, bytes); });
      break;
    case MachineWay::Nvlink:
      around(d, [&](int from, int to, double bytes) { flows.over_nvlink(from, to, bytes); });
      break;
    case MachineWay::CpuAssisted:
      for (int device = 0; device < d; ++device) {
        for (int other = device / l * l; other < device / l * l + l; ++other) {
          // its part of the other's share, then the sum of its own share
          if (other != device) flows.between_devices(device, other, 2.0 / l);
        }
        flows.to_host_and_back(device, 1.0 / l);
      }
      return flows;
    case MachineWay::NvlinkRoot:
      // Along a chain that ends at the root, and back.
      for (int hop = 1; hop < d; ++hop) {
        const int from = (root + hop) % d;
        const int to = (root + hop - 1) % d;
        flows.over_nvlink(from, to, 1);
        flows.over_nvlink(to, from, 1);
      }
      flows.to_host_and_back(root, 1);
      return flows;
  }
  if (!leaves) return flows;
  for (int device = 0; device < d; ++device) flows.to_host_and_back(device, 1.0 / d);
  return flows;
}

TEST(MachineSum, FormulasAreThoseOfEveryTransferWrittenOut) {
  for (int p = 1; p <= 4; ++p) {
    for (int l = 1; l <= 4; ++l) {
      for (const double network : {0.0, 1.0, 1.5}) {
        for (int card = -1; card < p; ++card) {
          cluster::Machine machine = equal_links(p);
          machine.nvlink_bytes_per_s = kGB;
          machine.network_card = card;
          const int d = p * l;
          for (const MachineSum& sum :
               machine_sums(machine, {.devices = d, .replicas = d, .network = network})) {
            SCOPED_TRACE(testing::Message() << to_string(sum.way) << ' ' << p << 'x' << l);
            const Flows flows = flows_of(sum.way, p, l, network > 0, sum.root);
            EXPECT_NEAR(sum.device_ns, flows.most("device"), 1e-12);
            EXPECT_NEAR(sum.switch_ns, flows.most("switch"), 1e-12);
            // A chain of two passes half of what its links could carry.
            EXPECT_NEAR(sum.nvlink_ns, sum.way == MachineWay::NvlinkRoot ? 2 : flows.most("nvlink"),
                        1e-12);
            if (card < 0) continue;
            EXPECT_NEAR(sum.card_share, flows.through_switch(card), 1e-12);
            const double beside = network > 0 ? sum.card_share + network : 0;
            EXPECT_NEAR(sum.card_ns, beside, 1e-12);
          }
        }
      }
    }
  }
}

TEST(MachineSum, TimesNeverFallWithAReplicaAndPerReplicaNeverRise) {
  for (int p = 1; p <= 4; ++p) {
    for (int l = 1; l <= 4; ++l) {
      for (const double network : {0.0, 1.0, 1.7}) {
        cluster::Machine machine = equal_links(p);
        machine.cross_bytes_per_s = kGB * 2 / 3;
        machine.nvlink_bytes_per_s = l % 2 == 0 ? 4 * kGB : 0;
        machine.network_card = p > 2 ? 1 : -1;
        double before = 0;
        for (int r = 2; r <= p * l; ++r) {
          const double ns =
              best_machine_sum(machine, {.devices = p * l, .replicas = r, .network = network}).ns();
          EXPECT_GE(ns, before);
          if (r > 2) {
            EXPECT_LE(ns / r, before / (r - 1) * (1 + 1e-15));
          }
          before = ns;
        }
      }
    }
  }
}

TEST(MachineSum, ReplicasThatDoNotFitAreOurMistake) {
  EXPECT_THROW(machine_sums(equal_links(2), {.devices = 8, .replicas = 9}), InternalError);
  EXPECT_THROW(machine_sums(equal_links(3), {.devices = 8, .replicas = 8}), InternalError);
}

}  // namespace
}  // namespace penstock::plan
