// The price of adding inside machines first, against formulas written out for every unit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "penstock/planner/cost/named_models.h"
#include "penstock/planner/testing/testing_graphs.h"

namespace penstock::planner {
namespace {

using testing_graphs::between;
using testing_graphs::flat_cluster;

/// Four GPUs in a server, three servers in a rack, two racks.
cluster::Cluster racks() {
  return {.levels = {
              {.name = "server", .count = 4, .bandwidth_bytes_per_s = 1'000'000'000},
              {.name = "rack", .count = 3, .bandwidth_bytes_per_s = 100'000'000, .latency_ns = 70},
              {.name = "hall", .count = 2, .bandwidth_bytes_per_s = 50'000'000, .latency_ns = 5}}};
}

std::unique_ptr<CostModel> hierarchical(const cluster::Cluster& cluster) {
  return make_cost_model("penstock", cluster, GradientSync::Hierarchical);
}

TEST(Hierarchical, SendsWhatMachinesSend) {
  const auto model = hierarchical(racks());
  EXPECT_EQ(model->machine_size(), 4);
  EXPECT_EQ(model->sync_ns(4000, 4, 1), 2 * 3 * 1000);             // inside a server alone
  EXPECT_EQ(model->sync_ns(4000, 8, 2), 4000 * 10 + 70);           // W out of each of two servers
  EXPECT_EQ(model->sync_ns(3000, 12, 2), 2 * 2 * 1000 * 10 + 70);  // 2 (n-1)/n W of three
  // Between racks of three servers pass 2 3 3/6 W.
  EXPECT_EQ(model->sync_ns(3000, 24, 3), 3 * 3000 * 20 + 75);
  EXPECT_EQ(make_cost_model("penstock", racks(), GradientSync::Ordered)->sync_ns(3000, 24, 3),
            12 * 3000 * 20 + 75);
}

TEST(Hierarchical, IsAsSlowAsTheInsideWhereTheNetworkIsFaster) {
  cluster::Cluster cluster = racks();
  cluster.levels[0].bandwidth_bytes_per_s = 10'000'000;
  EXPECT_EQ(hierarchical(cluster)->sync_ns(4000, 8, 2), 2 * 3 * 1000 * 100 + 70);
}

TEST(Hierarchical, ServersCountMachines) {
  cluster::Cluster cluster = racks();
  cluster.levels.pop_back();
  cluster.levels[1].count = 4;
  cluster.cpu_machines = {.count = 2, .bandwidth_bytes_per_s = 100'000'000};
  // 2n(n-1) / (n^2 + kn - 2k) = 24/20 with n = 4 machines of 4.
  EXPECT_EQ(hierarchical(cluster)->sync_ns(4000, 16, 2), 4800 * 10 + 70);
  EXPECT_TRUE(hierarchical(cluster)->uses_servers(4000, 16, 2));
  EXPECT_FALSE(hierarchical(cluster)->uses_servers(4000, 4, 1));
}

TEST(Hierarchical, IsSummationWhereEveryWorkerIsAMachine) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    cluster::Cluster cluster = testing_graphs::random_cluster(rng, 64);
    cluster.levels.insert(cluster.levels.begin(), {.name = "machine", .machine = true});
    cluster.cpu_machines = {.count = static_cast<int>(between(rng, 0, 3)),
                            .bandwidth_bytes_per_s = 700'000'000};
    const auto summation = make_cost_model("penstock", cluster, GradientSync::Summation);
    const auto replicas = static_cast<int>(between(rng, 1, 40));
    for (int level = 1; level <= summation->topology().num_levels(); ++level) {
      EXPECT_EQ(hierarchical(cluster)->sync_ns(123'457, replicas, level),
                summation->sync_ns(123'457, replicas, level));
    }
  }
  const auto flat = make_cost_model("penstock", flat_cluster(8, 1000), GradientSync::Summation);
  EXPECT_EQ(hierarchical(flat_cluster(8, 1000))->sync_ns(4000, 8, 1), flat->sync_ns(4000, 8, 1));
}

// What follows prices one sum without the model's code, unit by unit.

/// The most that passes out of one of the units of `size` when `n` members send to each other as
/// `ordered` does.
double ordered_share(int n, int size) {
  double most = 0;
  for (int inside = 1; inside <= std::min(size, n); ++inside)
    most = std::max(most, 2.0 * inside * (n - inside) / n);
  return most;
}

struct SumCase {
  cluster::Cluster cluster;
  int replicas = 2;
  int level = 1;
  int machine_level = 0;
  int machine_size = 1;
  int machines = 1;
};

double inside_ns(const SumCase& c, double network) {
  const int r = std::min(c.replicas, c.machine_size);
  const int top = std::min(c.level, c.machine_level);
  if (c.machine_size == 1) return 0;
  if (!c.cluster.machine) {
    double ns = 0;
    int unit = 1;
    for (int l = 0; l < top; ++l) {
      const cluster::Level& level = c.cluster.levels[static_cast<size_t>(l)];
      if (level.count > 1)
        ns = std::max(
            ns, ordered_share(r, unit) * 1e9 / static_cast<double>(level.bandwidth_bytes_per_s));
      unit *= level.count;
    }
    return ns;
  }
  const cluster::Machine& machine = *c.cluster.machine;
  const auto at = [](int64_t bandwidth) { return 1e9 / static_cast<double>(bandwidth); };
  const double device = at(machine.device_bytes_per_s);
  const double host = at(machine.switch_bytes_per_s);
  const double cross = std::max(device, at(machine.cross_bytes_per_s));
  const int l = c.machine_size / machine.switches;
  int unit = 1;
  for (int at_level = 0; at_level < top; ++at_level)
    unit *= c.cluster.levels[static_cast<size_t>(at_level)].count;
  const bool crosses = machine.switches > 1 && l % unit != 0;
  const double around = 2.0 * (r - 1) / r;
  const double card = machine.network_card >= 0 ? network * host : 0;
  const double copied = network > 0 ? host / machine.switches : 0;
  const double copies = network > 0 ? device / c.machine_size : 0;
  const auto slowest = [&](double device_ns, double switch_ns, double nvlink_ns) {
    return std::max({device_ns, card > 0 ? switch_ns + card : switch_ns, nvlink_ns});
  };
  const double together = std::min<double>(r, l);
  double ns =
      std::min(slowest(around * device + copies, (crosses ? around * cross : 0) + copied, 0),
               slowest((2 * together - 1) / together * device, host, 0));
  if (machine.nvlink_bytes_per_s == 0) return ns;
  const double nvlink = at(machine.nvlink_bytes_per_s);
  ns = std::min(ns, slowest(copies, copied, around * nvlink));
  if (network == 0) return ns;
  const bool away = machine.network_card != 0 || machine.switches > 1;
  return std::min(ns, std::max({device, host, 2 * nvlink, away ? card : card + host}));
}

/// Per byte, and the latency.
double sum_ns(const SumCase& c, double bytes) {
  const cluster::Topology topology(c.cluster);
  const auto latency = [&](int level) {
    return static_cast<double>(topology.path(level).latency_ns);
  };
  const int n = c.machines;
  if (n == 1) return latency(c.level) + bytes * inside_ns(c, 0);
  double peers = inside_ns(c, 2.0 * (n - 1) / n);
  const auto ns_of = [&](int l) {
    const cluster::Level& level = c.cluster.levels[static_cast<size_t>(l) - 1];
    return level.count > 1 ? 1e9 / static_cast<double>(level.bandwidth_bytes_per_s) : 0;
  };
  for (int l = c.machine_level + 1; l <= c.level; ++l)
    peers =
        std::max(peers, ns_of(l) * ordered_share(n, topology.unit_size(l - 1) / c.machine_size));
  const double peers_ns = latency(c.level) + bytes * peers;
  if (c.cluster.cpu_machines.count == 0) return peers_ns;
  const int top = topology.num_levels();
  double nic = HUGE_VAL;  // of a machine, or of a worker alone
  for (int l = c.machine_level + 1; l <= top; ++l) nic = std::min(nic, 1e9 / ns_of(l));
  const auto server_nic = static_cast<double>(c.cluster.cpu_machines.bandwidth_bytes_per_s);
  const plan::SumShares shares =
      plan::sum_shares(GradientSync::Summation, n, c.cluster.cpu_machines.count, server_nic / nic);
  const double g = shares.replica;
  double service = std::max(inside_ns(c, 1 + (n - 2) * g), n * shares.server * 1e9 / server_nic);
  for (int l = c.machine_level + 1; l <= top; ++l) {
    const double unit = std::min(topology.unit_size(l - 1) / c.machine_size, n);
    // Its own parts leave with the sums, other machines' parts come from all of them; the worst
    // number of machines of the unit need not be a whole one.
    for (int i = 0; i <= 20'000; ++i) {
      const double r = unit * i / 20'000;
      service = std::max(service, ns_of(l) * r * (2 * (n - r) * g + 1 - n * g));
    }
  }
  return std::min(peers_ns, latency(top) + bytes * service);
}

TEST(HierarchicalProperty, PricesAreThoseOfEveryUnitWrittenOut) {
  int served = 0;
  int described = 0;
  for (uint64_t seed = 0; seed < 2'000; ++seed) {
    Rng rng(seed);
    SumCase c{.cluster = testing_graphs::random_cluster(rng, 64)};
    testing_graphs::add_machines(rng, c.cluster);
    c.cluster.cpu_machines.count = static_cast<int>(between(rng, 0, 3));
    c.cluster.cpu_machines.bandwidth_bytes_per_s = between(rng, 1, 20) * 100'000'000;
    const cluster::Topology topology(c.cluster);
    if (topology.num_workers() == 1) continue;
    c.machine_level = c.cluster.machine_level();
    c.machine_size = topology.unit_size(c.machine_level);
    if (c.machine_size == 1) c.machine_level = 0;
    c.replicas = static_cast<int>(between(rng, 2, topology.num_workers()));
    const int first = static_cast<int>(between(rng, 0, topology.num_workers() - c.replicas));
    c.level = topology.level_of({first, c.replicas});
    if (c.level > c.machine_level)
      c.machines = std::max(2, (c.replicas + c.machine_size - 1) / c.machine_size);
    const int64_t bytes = between(rng, 0, 5'000'000);
    const auto model = hierarchical(c.cluster);
    const double expected = sum_ns(c, static_cast<double>(bytes));
    const auto priced = static_cast<double>(model->sync_ns(bytes, c.replicas, c.level));
    ASSERT_NEAR(priced, expected, 1e-7 * expected + 30) << "seed " << seed;
    served += model->uses_servers(bytes, c.replicas, c.level) ? 1 : 0;
    described += model->machine_sum(bytes, c.replicas, c.level) ? 1 : 0;
  }
  EXPECT_GT(served, 50);
  EXPECT_GT(described, 200);
}

}  // namespace
}  // namespace penstock::planner
