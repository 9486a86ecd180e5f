#include "penstock/plan/machine_sum.h"

#include <algorithm>
#include <array>

#include "penstock/util/check.h"

namespace penstock::plan {

namespace {

double ns_of(int64_t bytes_per_s) { return 1e9 / static_cast<double>(bytes_per_s); }

/// What the ways have in common.
struct Links {
  Links(const cluster::Machine& machine, const MachineReplicas& replicas)
      : device_ns(ns_of(machine.device_bytes_per_s)),
        switch_ns(ns_of(machine.switch_bytes_per_s)),
        card_ns(machine.network_card >= 0 ? replicas.network * switch_ns : 0),
        under_switch(replicas.devices / machine.switches),
        crosses(machine.switches > 1 && replicas.replicas > 1 && !replicas.one_switch),
        copies(replicas.network > 0) {
    const double r = replicas.replicas;
    around = 2 * (r - 1) / r;
    if (copies) {
      device_copy = 1.0 / replicas.devices;
      switch_copy = 1.0 / machine.switches;
    }
  }

  double device_ns;
  double switch_ns;
  double card_ns;  ///< of the network alone
  int under_switch;
  bool crosses;
  bool copies;
  double around = 0;  ///< reduce-scatter and all-gather
  double device_copy = 0;
  double switch_copy = 0;
};

MachineSum ring(const cluster::Machine& machine, const Links& links) {
  MachineSum sum{.way = MachineWay::Ring};
  sum.device_ns = (links.around + links.device_copy) * links.device_ns;
  sum.switch_ns = links.switch_copy * links.switch_ns;
  sum.card_share = links.switch_copy;
  if (links.crosses) {
    sum.switch_ns += links.around * std::max(ns_of(machine.cross_bytes_per_s), links.device_ns);
    sum.card_share += links.around;
  }
  sum.card_ns = links.card_ns > 0 ? sum.switch_ns + links.card_ns : 0;
  return sum;
}

MachineSum cpu_assisted(const MachineReplicas& replicas, const Links& links) {
  const double together = std::min(replicas.replicas, links.under_switch);
  return {.way = MachineWay::CpuAssisted,
          .device_ns = (2 * together - 1) / together * links.device_ns,
          .switch_ns = links.switch_ns,
          .card_ns = links.card_ns > 0 ? links.switch_ns + links.card_ns : 0,
          .card_share = 1};
}

MachineSum nvlink(const cluster::Machine& machine, const Links& links) {
  const double copy_ns = links.switch_copy * links.switch_ns;
  return {.way = MachineWay::Nvlink,
          .device_ns = links.device_copy * links.device_ns,
          .switch_ns = copy_ns,
          .nvlink_ns = links.around * ns_of(machine.nvlink_bytes_per_s),
          .card_ns = links.card_ns > 0 ? copy_ns + links.card_ns : 0,
          .card_share = links.switch_copy};
}

MachineSum nvlink_root(const cluster::Machine& machine, const Links& links) {
  const bool beside_card = machine.network_card == 0 && machine.switches == 1;
  MachineSum sum{.way = MachineWay::NvlinkRoot,
                 .device_ns = links.device_ns,
                 .switch_ns = links.switch_ns,
                 .nvlink_ns = 2 * ns_of(machine.nvlink_bytes_per_s),
                 .card_ns = links.card_ns,
                 .root = machine.network_card == 0 && !beside_card ? links.under_switch : 0};
  if (beside_card) {
    sum.card_ns += links.switch_ns;
    sum.card_share = 1;
  }
  return sum;
}

}  // namespace

std::string_view to_string(MachineWay way) {
  switch (way) {
    case MachineWay::Ring:
      return "ring";
    case MachineWay::CpuAssisted:
      return "cpu-assisted";
    case MachineWay::Nvlink:
      return "nvlink";
    case MachineWay::NvlinkRoot:
      return "nvlink-root";
  }
  return "ring";
}

double MachineSum::ns() const { return std::max({device_ns, switch_ns, nvlink_ns, card_ns}); }

namespace {

/// The search for plans asks often: no memory is allocated.
struct Sums {
  std::array<MachineSum, 4> ways;
  size_t count = 0;

  void add(const MachineSum& sum) { ways[count++] = sum; }
  const MachineSum* begin() const { return ways.data(); }
  const MachineSum* end() const { return ways.data() + count; }
};

Sums sums_of(const cluster::Machine& machine, const MachineReplicas& replicas) {
  PENSTOCK_CHECK(replicas.replicas >= 1 && replicas.replicas <= replicas.devices &&
                     replicas.devices % machine.switches == 0,
                 replicas.replicas, replicas.devices, machine.switches);
  const Links links(machine, replicas);
  Sums sums;
  sums.add(ring(machine, links));
  sums.add(cpu_assisted(replicas, links));
  if (machine.nvlink_bytes_per_s > 0) {
    sums.add(nvlink(machine, links));
    // Where nothing leaves the machine, no device needs to have everything.
    if (links.copies) sums.add(nvlink_root(machine, links));
  }
  if (machine.network_card < 0) {
    for (MachineSum& sum : sums.ways) sum.card_share = 0;
  }
  return sums;
}

}  // namespace

std::vector<MachineSum> machine_sums(const cluster::Machine& machine,
                                     const MachineReplicas& replicas) {
  const Sums sums = sums_of(machine, replicas);
  return {sums.begin(), sums.end()};
}

MachineSum best_machine_sum(const cluster::Machine& machine, const MachineReplicas& replicas) {
  const Sums sums = sums_of(machine, replicas);
  return *std::min_element(sums.begin(), sums.end(), [](const MachineSum& a, const MachineSum& b) {
    return a.ns() < b.ns();
  });
}

}  // namespace penstock::plan
