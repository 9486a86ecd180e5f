// How long the devices of one machine take to add their gradients, by the ways that BytePS compares
// (Jiang et al., OSDI 2020, section 4.3). p PCIe switches with l devices each, d = p l; M bytes of
// gradients per device; per link and direction:
//
//   way            device to its switch   switch to the host's memory           NVLink
//   ring           2(d-1)/d M             2(d-1)/d M, at the speed across
//                                         switches; nothing where p = 1
//   cpu-assisted   (2l-1)/l M             M
//   nvlink                                                                      2(d-1)/d M
//   nvlink-root    M at the root          M at the root's switch                2 M
//
// ring: reduce-scatter and all-gather around all devices. cpu-assisted: reduce-scatter under each
// switch, each device copies its M/l to the host's memory, the CPU adds what the switches brought,
// and all of it goes back. nvlink: as ring, over NVLink. nvlink-root: all devices reduce to one,
// the root, which exchanges M with the host and broadcasts; the root is behind a switch without the
// NIC.
//
// Where a network follows, the host's memory must have the sums: with ring and nvlink each device
// copies its M/d there and back, which is M/p per switch. What the NIC sends and receives passes
// the link of the switch that it is behind, in addition to what is copied there: that is why
// nvlink-root is faster than nvlink then. The time is that of the busiest link.
//
// The paper's ring sends from device memory and its figures leave those copies out, as `network =
// 0` does. Like the paper we take the memory of the host and its CPU to be faster than the links.
// Sending a part of the gradients to the CPU unreduced would save up to 9 % more (l = 4, equal
// links), at l times the load of the memory; BytePS does not, and neither do we.
//
//   // two switches with four devices each, sums stay inside
//   best_machine_sum(machine, {.devices = 8, .replicas = 8}).ns() * bytes;
//
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/cluster/cluster.h"

namespace penstock::plan {

enum class MachineWay : uint8_t { Ring, CpuAssisted, Nvlink, NvlinkRoot };

/// "ring", "cpu-assisted", "nvlink", "nvlink-root".
std::string_view to_string(MachineWay way);

struct MachineReplicas {
  int devices = 1;  ///< of the machine: a multiple of its switches
  int replicas =
      1;  ///< devices that add; wherever they are, so across switches where there are any
  bool one_switch = false;  ///< they are all behind one
  /// Bytes that the NIC sends, and receives, per byte of gradients. 0: the sums stay in the
  /// machine.
  double network = 0;
};

/// How long each link is occupied per byte of gradients, by its busier direction.
struct MachineSum {
  MachineWay way = MachineWay::Ring;
  double device_ns = 0;  ///< a device to its switch
  double switch_ns = 0;  ///< a switch to the host's memory
  double nvlink_ns = 0;
  /// The NIC's switch to the host's memory, with the bytes of the network; 0 where the NIC is
  /// behind none, or the sums stay in the machine.
  double card_ns = 0;
  double card_share = 0;  ///< bytes that adding puts on that link, per byte of gradients
  int root = -1;          ///< nvlink-root: which device

  double ns() const;
};

/// All ways that the machine has, in the order of MachineWay. With fewer replicas than devices, the
/// copies to the host count as spread over all devices, so that no time falls when a replica is
/// added; `nvlink-root` with two would need only M of NVLink. O(1). `machine` is valid, 1 <=
/// replicas <= devices.
std::vector<MachineSum> machine_sums(const cluster::Machine& machine,
                                     const MachineReplicas& replicas);
/// The fastest of them; of equally fast ones the first.
MachineSum best_machine_sum(const cluster::Machine& machine, const MachineReplicas& replicas);

}  // namespace penstock::plan
