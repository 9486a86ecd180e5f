#include "penstock/runtime/fabric_team.h"

#include <utility>

#include "penstock/util/check.h"

namespace penstock::runtime {

FabricTeam::FabricTeam(const schedule::TeamPlace& place, const StageContext& context)
    : context_(context),
      size_(place.size),
      next_{.first = place.first, .replica = context.replica.replica, .member = place.member} {}

void FabricTeam::begin(const schedule::Action& action) {
  next_.op = action.op;
  next_.micro_batch = action.micro_batch;
}

std::vector<at::Tensor> FabricTeam::exchange(std::vector<at::Tensor> parts,
                                             const std::vector<std::vector<int64_t>>& sizes) {
  const auto members = static_cast<size_t>(size_);
  PENSTOCK_CHECK(parts.size() == members && sizes.size() == members, parts.size(), sizes.size());
  const at::ScalarType type = parts.front().scalar_type();
  std::vector<TensorLayout> expected;
  for (const std::vector<int64_t>& given : sizes)
    expected.push_back({.sizes = given, .type = type});
  // Others must not hold the graphs of this member's tensors.
  for (at::Tensor& part : parts) part = part.detach();
  std::vector<at::Tensor> taken(members);
  const TeamExchange exchange = next_;
  ++next_.number;
  WorkerDevice& device = context_.device();
  taken[static_cast<size_t>(exchange.member)] =
      std::exchange(parts[static_cast<size_t>(exchange.member)], at::Tensor());
  if (!device.is_host()) parts = device.to_host(std::move(parts));
  Fabric& fabric = context_.fabric;
  fabric.start_exchange(exchange, std::move(parts), expected);
  for (size_t m = 0; m < members; ++m) {
    const auto from = static_cast<int>(m);
    if (from == exchange.member) continue;
    context_.block([&](Wait& wait) {
      fabric.board().wait_for_member(context_.replica.worker, exchange.number, from);
      return fabric.finish_exchange(exchange, from, expected[m], taken[m], wait);
    });
  }
  if (device.is_host()) return taken;
  at::Tensor own = std::exchange(taken[static_cast<size_t>(exchange.member)], at::Tensor());
  taken = device.to_device(std::move(taken));
  taken[static_cast<size_t>(exchange.member)] = std::move(own);
  return taken;
}

}  // namespace penstock::runtime
