#include "penstock/runtime/fabric/mesh/mesh_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <set>

#include "penstock/runtime/fabric/gradient_norm.h"
#include "penstock/runtime/fabric/mesh/tensor_bytes.h"
#include "penstock/runtime/fabric/stopwatch.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

at::Tensor shaped(const at::Tensor& flat, const RawLayout& layout) {
  return flat.defined() ? flat.view(layout.sizes) : flat;
}

void send_share(net::Mesh& mesh, net::Tag tag, const NormShare& share) {
  net::WireWriter head;
  head.list(share.squares);
  head.put<uint64_t>(share.tied.size());
  model::Tensors tensors;
  for (const NormShare::Tied& tied : share.tied) {
    head.put<uint64_t>(tied.group);
    head.put<uint64_t>(tied.copy);
    put_layout(head, layout_of(tied.gradient));
    tensors.push_back(tied.gradient);
  }
  head.put<uint64_t>(share.wanted.size());
  for (const size_t group : share.wanted) head.put<uint64_t>(group);
  send_raw(mesh, 0, tag, head.take(), std::move(tensors));
}

NormShare read_share(const RawMessage& message) {
  NormShare share;
  net::WireReader head(message.head());
  share.squares = head.list<NormShare::Squares>();
  const auto tied = head.get<uint64_t>();
  for (uint64_t i = 0; i < tied; ++i) {
    NormShare::Tied entry{
        .group = head.get<uint64_t>(), .copy = head.get<uint64_t>(), .gradient = {}};
    const RawLayout layout = get_layout(head);
    entry.gradient = shaped(message.tensor(i, layout.type), layout);
    share.tied.push_back(std::move(entry));
  }
  share.wanted = head.list<uint64_t>();
  return share;
}

}  // namespace

MeshNorm::MeshNorm(net::Mesh& mesh, uint32_t run, uint32_t first_channel, const Site& site,
                   const RunSetup& setup)
    : mesh_(mesh),
      run_(run),
      first_channel_(first_channel),
      ranks_(site.num_training_ranks()),
      own_workers_(static_cast<int>(site.own_workers().size())),
      ties_(setup.ties),
      num_model_weights_(setup.num_model_weights),
      posted_(static_cast<size_t>(ranks_)) {}

net::Tag MeshNorm::tag(bool answer, int peer, uint64_t round) const {
  return {.run = run_,
          .channel = first_channel_ + 2 * static_cast<uint32_t>(peer) + (answer ? 1 : 0),
          .sequence = round};
}

void MeshNorm::start() { post(0); }

void MeshNorm::post(uint64_t round) {
  if (mesh_.rank() != 0) {
    posted_[0] = post_raw(mesh_, 0, tag(/*answer=*/true, mesh_.rank(), round));
    return;
  }
  for (int r = 1; r < ranks_; ++r)
    posted_[static_cast<size_t>(r)] = post_raw(mesh_, r, tag(/*answer=*/false, r, round));
}

void MeshNorm::merge(NormShare& into, NormShare&& share) {
  for (auto& tied : share.tied) into.tied.push_back(std::move(tied));
  into.wanted.insert(into.wanted.end(), share.wanted.begin(), share.wanted.end());
  into.squares.insert(into.squares.end(), share.squares.begin(), share.squares.end());
}

void MeshNorm::add_up(const NormShare& share, double& norm, std::vector<at::Tensor>& sums) const {
  std::vector<double> squares(num_model_weights_, 0.0);
  for (const NormShare::Squares& entry : share.squares) squares.at(entry.weight) = entry.sum;
  std::vector<std::map<size_t, at::Tensor>> copies(ties_.size());
  for (const NormShare::Tied& tied : share.tied) copies.at(tied.group)[tied.copy] = tied.gradient;
  sums.assign(ties_.size(), {});
  for (size_t group = 0; group < ties_.size(); ++group) {
    at::Tensor& sum = sums[group];
    for (const auto& [copy, part] : copies[group]) {
      if (part.defined()) sum = sum.defined() ? sum + part : part;
    }
    if (!copies[group].empty() && ties_[group].counts)
      squares.at(ties_[group].weight) = sum_of_squares(sum);
  }
  double total = 0;
  for (const double entry : squares) total += entry;
  norm = std::sqrt(total);
}

WaitResult MeshNorm::serve_all(uint64_t round, NormShare share, NormTotals& totals, Wait& wait) {
  std::vector<std::vector<size_t>> wanted(static_cast<size_t>(ranks_));
  const std::vector<size_t> own = share.wanted;
  for (int r = 1; r < ranks_; ++r) {
    const RawMessage& message = posted_[static_cast<size_t>(r)];
    {
      const Stopwatch stopwatch(wait);
      const WaitResult result = result_of(message.transfer->wait(wait.deadline));
      if (result != WaitResult::Ready) return result;
    }
    NormShare other = read_share(message);
    wanted[static_cast<size_t>(r)] = other.wanted;
    merge(share, std::move(other));
  }
  std::vector<at::Tensor> sums;
  add_up(share, totals.norm, sums);
  for (const size_t group : own) totals.tied_sums[group] = sums.at(group);
  post(round + 1);
  for (int r = 1; r < ranks_; ++r) {
    const auto& groups = wanted[static_cast<size_t>(r)];
    const std::set<size_t> once(groups.begin(), groups.end());
    net::WireWriter head;
    model::Tensors tensors;
    head.put(totals.norm);
    head.put<uint64_t>(once.size());
    for (const size_t group : once) {
      head.put<uint64_t>(group);
      put_layout(head, layout_of(sums.at(group)));
      tensors.push_back(sums[group]);
    }
    send_raw(mesh_, r, tag(/*answer=*/true, r, round), head.take(), std::move(tensors));
  }
  return WaitResult::Ready;
}

WaitResult MeshNorm::ask_rank_0(uint64_t round, const NormShare& share, NormTotals& totals,
                                Wait& wait) {
  send_share(mesh_, tag(/*answer=*/false, mesh_.rank(), round), share);
  const RawMessage answer = posted_[0];
  {
    const Stopwatch stopwatch(wait);
    const WaitResult result = result_of(answer.transfer->wait(wait.deadline));
    if (result != WaitResult::Ready) return result;
  }
  net::WireReader head(answer.head());
  totals.norm = head.get<double>();
  const auto groups = head.get<uint64_t>();
  for (uint64_t i = 0; i < groups; ++i) {
    const auto group = head.get<uint64_t>();
    const RawLayout layout = get_layout(head);
    totals.tied_sums[group] = shaped(answer.tensor(i, layout.type), layout);
  }
  post(round + 1);
  return WaitResult::Ready;
}

WaitResult MeshNorm::exchange(uint64_t round, NormShare share, NormTotals& totals, Wait& wait) {
  const at::NoGradGuard no_grad;
  return mesh_.rank() == 0 ? serve_all(round, std::move(share), totals, wait)
                           : ask_rank_0(round, share, totals, wait);
}

WaitResult MeshNorm::run(NormShare share, NormTotals& totals, Wait& wait) {
  const std::vector<size_t> wanted = share.wanted;
  NormShare all;
  uint64_t number = 0;
  bool is_last = false;
  {
    MutexLock lock(mutex_);
    if (closed_) return WaitResult::Closed;
    number = round_of_[share.worker]++;
    Round& round = rounds_[number];
    merge(round.share, std::move(share));
    is_last = ++round.came == own_workers_;
    if (is_last) all = std::move(round.share);
  }
  if (is_last) {
    NormTotals result;
    const WaitResult exchanged = exchange(number, std::move(all), result, wait);
    if (exchanged != WaitResult::Ready) {
      if (exchanged == WaitResult::Closed) close();
      return exchanged;
    }
    MutexLock lock(mutex_);
    Round& round = rounds_[number];
    round.totals = std::move(result);
    round.is_ready = true;
    round.left = own_workers_;
    changed_.notify_all();
  }
  const Stopwatch stopwatch(wait);
  MutexLock lock(mutex_);
  changed_.wait_until(mutex_, wait.deadline, [&]() NO_THREAD_SAFETY_ANALYSIS {
    return closed_ || rounds_[number].is_ready;
  });
  Round& round = rounds_[number];
  if (!round.is_ready) return closed_ ? WaitResult::Closed : WaitResult::TimedOut;
  totals.norm = round.totals.norm;
  totals.tied_sums.clear();
  for (const size_t group : wanted) totals.tied_sums[group] = round.totals.tied_sums.at(group);
  if (--round.left == 0) rounds_.erase(number);
  return WaitResult::Ready;
}

void MeshNorm::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace penstock::runtime
