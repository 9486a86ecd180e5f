#include "penstock/runtime/fabric/mesh/mesh_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

MeshSum::MeshSum(net::Mesh& mesh, uint32_t run, uint32_t first_channel,
                 std::vector<int> rank_of_replica, size_t count)
    : mesh_(mesh),
      run_(run),
      first_channel_(first_channel),
      rank_of_replica_(std::move(rank_of_replica)),
      count_(count),
      state_(rank_of_replica_.size()) {}

bool MeshSum::is_here(int replica) const {
  return rank_of_replica_[static_cast<size_t>(replica)] == mesh_.rank();
}

net::Tag MeshSum::tag(Phase phase, int from, int to, uint64_t round) const {
  const auto count = static_cast<uint32_t>(replicas());
  const uint32_t pair = static_cast<uint32_t>(from) * count + static_cast<uint32_t>(to);
  return {.run = run_, .channel = first_channel_ + 2 * pair + phase, .sequence = round};
}

void MeshSum::start() {
  for (int r = 0; r < static_cast<int>(replicas()); ++r) {
    if (is_here(r)) post_parts(r);
  }
}

void MeshSum::post_parts(int replica) {
  Replica& state = state_[static_cast<size_t>(replica)];
  state.parts.assign(replicas(), {});
  for (int from = 0; from < static_cast<int>(replicas()); ++from) {
    if (is_here(from)) continue;
    const auto peer = static_cast<size_t>(from);
    state.parts[peer] =
        post_raw(mesh_, rank_of_replica_[peer], tag(Parts, from, replica, state.round));
  }
}

at::Tensor MeshSum::slice(const at::Tensor& gradient, int owner) const {
  const int64_t size = gradient.numel();
  const auto count = static_cast<int64_t>(replicas());
  const int64_t begin = size * owner / count;
  return gradient.view(-1).narrow(0, begin, size * (owner + 1) / count - begin);
}

MeshSum::Contribution MeshSum::contribution_of(const Partials& partials, int owner) const {
  Contribution contribution;
  contribution.layouts.resize(count_);
  for (const GroupGradients& group : partials) {
    contribution.groups.push_back(group.group);
    for (size_t i = 0; i < count_; ++i) {
      const at::Tensor& gradient = group.sums[i];
      contribution.slices.push_back(gradient.defined() ? slice(gradient, owner) : at::Tensor());
      if (gradient.defined()) contribution.layouts[i] = layout_of(gradient);
    }
  }
  return contribution;
}

void MeshSum::send_parts(int replica, const Partials& partials) {
  const uint64_t round = state_[static_cast<size_t>(replica)].round;
  for (int to = 0; to < static_cast<int>(replicas()); ++to) {
    if (to == replica) continue;
    Contribution contribution = contribution_of(partials, to);
    if (is_here(to)) {
      slots_.put({Parts, replica, to, round}, std::move(contribution));
      continue;
    }
    net::WireWriter head;
    head.list(contribution.groups);
    for (const RawLayout& layout : contribution.layouts) put_layout(head, layout);
    send_raw(mesh_, rank_of_replica_[static_cast<size_t>(to)], tag(Parts, replica, to, round),
             head.take(), std::move(contribution.slices));
  }
}

WaitResult MeshSum::receive_parts(int replica, std::vector<Contribution>& all, Wait& wait) {
  Replica& state = state_[static_cast<size_t>(replica)];
  for (int from = 0; from < static_cast<int>(replicas()); ++from) {
    if (from == replica) continue;
    Contribution& contribution = all[static_cast<size_t>(from)];
    const Stopwatch stopwatch(wait);
    if (is_here(from)) {
      const WaitResult result =
          slots_.take({Parts, from, replica, state.round}, contribution, wait);
      if (result != WaitResult::Ready) return result;
      continue;
    }
    const RawMessage& message = state.parts[static_cast<size_t>(from)];
    const WaitResult result = result_of(message.transfer->wait(wait.deadline));
    if (result != WaitResult::Ready) return result;
    net::WireReader head(message.head());
    contribution.groups = head.list<int64_t>();
    for (size_t i = 0; i < count_; ++i) contribution.layouts.push_back(get_layout(head));
    for (size_t g = 0; g < contribution.groups.size(); ++g) {
      for (size_t i = 0; i < count_; ++i)
        contribution.slices.push_back(message.tensor(g * count_ + i, contribution.layouts[i].type));
    }
  }
  return WaitResult::Ready;
}

void MeshSum::add_up(int replica, const std::vector<Contribution>& all,
                     model::Tensors& sums) const {
  struct Place {
    int64_t group;
    const Contribution* contribution;
    size_t first;  ///< of its slices
  };
  std::vector<Place> order;
  for (const Contribution& contribution : all) {
    for (size_t g = 0; g < contribution.groups.size(); ++g)
      order.push_back({contribution.groups[g], &contribution, g * count_});
  }
  std::sort(order.begin(), order.end(),
            [](const Place& a, const Place& b) { return a.group < b.group; });
  for (size_t i = 0; i < count_; ++i) {
    at::Tensor sum;
    for (const Place& place : order) {
      const at::Tensor& part = place.contribution->slices[place.first + i];
      if (!part.defined()) continue;
      if (!sum.defined()) {
        sum = part.clone();
        continue;
      }
      if (part.numel() != sum.numel()) {
        throw TransportError(fmt::format(
            "the replicas of a stage have gradients of different shapes: {} and {} numbers",
            sum.numel(), part.numel()));
      }
      sum.add_(part);
    }
    if (!sum.defined()) continue;
    if (!sums[i].defined()) {
      for (const Contribution& contribution : all) {
        const RawLayout& layout = contribution.layouts[i];
        if (layout.defined) sums[i] = at::empty(layout.sizes, at::TensorOptions(layout.type));
      }
    }
    slice(sums[i], replica).copy_(sum);
  }
}

RawMessage MeshSum::post_results(int from, int to, const model::Tensors& sums, uint64_t round) {
  // Straight to where they belong, but for gradients that this replica has nothing of.
  RawMessage message{.parts = std::make_shared<model::Tensors>(sums), .transfer = nullptr};
  const auto place = [this, parts = message.parts, from](const std::vector<uint64_t>& sizes) {
    if (sizes.size() != parts->size())
      throw TransportError("sent results for another number of gradients");
    std::vector<net::Memory> places;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at::Tensor& part = (*parts)[i];
      if (sizes[i] == net::kAbsent) {
        part.reset();
      } else if (part.defined()) {
        part = slice(part, from);
        if (part.nbytes() != sizes[i])
          throw TransportError("sent a result of another size than the gradient's");
      } else {
        part = at::empty({static_cast<int64_t>(sizes[i])}, at::kByte);
      }
      places.push_back(memory_of(part));
    }
    return places;
  };
  message.transfer = mesh_.receive(rank_of_replica_[static_cast<size_t>(from)],
                                   tag(Results, from, to, round), place);
  return message;
}

void MeshSum::send_results(int replica, const model::Tensors& sums) {
  const uint64_t round = state_[static_cast<size_t>(replica)].round;
  model::Tensors own;
  for (const at::Tensor& sum : sums)
    own.push_back(sum.defined() ? slice(sum, replica) : at::Tensor());
  for (int to = 0; to < static_cast<int>(replicas()); ++to) {
    if (to == replica) continue;
    if (is_here(to)) {
      slots_.put({Results, replica, to, round}, {.groups = {}, .layouts = {}, .slices = own});
      continue;
    }
    const OutgoingTensors out(own);
    mesh_.send(rank_of_replica_[static_cast<size_t>(to)], tag(Results, replica, to, round),
               out.parts(), out.keep());
  }
}

WaitResult MeshSum::run(int replica, Partials partials, model::Tensors& sums, Wait& wait) {
  const at::NoGradGuard no_grad;
  Replica& state = state_[static_cast<size_t>(replica)];
  const auto count = static_cast<int>(replicas());

  // The first group that has a gradient lends its memory for the sum: the slice that another
  // replica owns has reached it before its result comes back.
  model::Tensors result(count_);
  for (size_t i = 0; i < count_; ++i) {
    for (const GroupGradients& group : partials) {
      if (!result[i].defined()) result[i] = group.sums[i];
    }
  }
  std::vector<RawMessage> results(replicas());
  for (int from = 0; from < count; ++from) {
    if (!is_here(from))
      results[static_cast<size_t>(from)] = post_results(from, replica, result, state.round);
  }
  send_parts(replica, partials);
  std::vector<Contribution> all(replicas());
  all[static_cast<size_t>(replica)] = contribution_of(partials, replica);
  if (const WaitResult waited = receive_parts(replica, all, wait); waited != WaitResult::Ready)
    return waited;
  add_up(replica, all, result);
  send_results(replica, result);

  for (int from = 0; from < count; ++from) {
    if (from == replica) continue;
    model::Tensors slices;
    if (is_here(from)) {
      const Stopwatch stopwatch(wait);
      Contribution contribution;
      const WaitResult waited =
          slots_.take({Results, from, replica, state.round}, contribution, wait);
      if (waited != WaitResult::Ready) return waited;
      slices = std::move(contribution.slices);
    } else {
      const RawMessage& message = results[static_cast<size_t>(from)];
      const Stopwatch stopwatch(wait);
      const WaitResult waited = result_of(message.transfer->wait(wait.deadline));
      if (waited != WaitResult::Ready) return waited;
      slices = *message.parts;
    }
    for (size_t i = 0; i < count_; ++i) {
      if (!slices[i].defined()) continue;
      const at::Tensor place = slice(result[i], from);
      if (slices[i].data_ptr() == place.data_ptr()) continue;
      place.copy_(slices[i].scalar_type() == place.scalar_type()
                      ? slices[i]
                      : slices[i].view(place.scalar_type()));
    }
  }
  ++state.round;
  post_parts(replica);
  sums = std::move(result);
  return WaitResult::Ready;
}

}  // namespace penstock::runtime
