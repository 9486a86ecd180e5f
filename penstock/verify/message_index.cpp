#include "penstock/verify/message_index.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "penstock/util/numbers/arithmetic.h"

namespace penstock::verify {
namespace {

bool is_distant(StageId from, StageId to) { return std::abs(from.value - to.value) != 1; }

uint64_t pair_key(StageId from, StageId to) {
  return (static_cast<uint64_t>(from.value) << 32) | static_cast<uint32_t>(to.value);
}

template <class Visit>
void for_each_distant(const Facts& facts, Visit visit) {
  for (const auto& list : facts.workers()) {
    for (const Action& action : list) {
      if (is_message(action.op) && is_distant(action.stage, action.peer)) visit(action);
    }
  }
}

}  // namespace

MessageIndex::MessageIndex(const Facts& facts) : facts_(facts) {
  for (int32_t s = 0; s + 1 < facts.num_stages; ++s) {
    add_link(StageId{s}, StageId{s + 1});
    add_link(StageId{s + 1}, StageId{s});
  }
  const size_t neighbours = ends_.size();
  int64_t distant_messages = 0;
  for_each_distant(facts, [&](const Action& action) {
    ++distant_messages;
    const StageId from = sender_of(action);
    const StageId to = receiver_of(action);
    if (distant_links_.try_emplace(pair_key(from, to), ends_.size()).second) add_link(from, to);
  });
  const auto distant = static_cast<int64_t>(ends_.size() - neighbours);
  if (saturating_mul(distant, facts.micro_batches) > 4 * distant_messages + 4096)
    first_hashed_link_ = neighbours;

  const size_t dense_links = std::min(ends_.size(), first_hashed_link_);
  num_messages_ = dense_links * static_cast<size_t>(facts.micro_batches);
  number_channels(dense_links);
  if (dense_links < ends_.size()) number_hashed(dense_links);
}

void MessageIndex::add_link(StageId from, StageId to) {
  const int64_t lanes =
      std::lcm(int64_t{facts_.table.replicas(from)}, int64_t{facts_.table.replicas(to)});
  ends_.push_back({from, to});
  lanes_.push_back(std::min(lanes, std::max<int64_t>(facts_.micro_batches, 1)));
}

void MessageIndex::number_channels(size_t dense_links) {
  first_lane_.resize(dense_links);
  size_t lanes = 0;
  for (size_t link = 0; link < dense_links; ++link) {
    first_lane_[link] = lanes;
    lanes += static_cast<size_t>(lanes_[link]);
  }
  if (!facts_.table.has_shared_workers()) {
    num_channels_ = lanes;
    return;
  }
  channel_of_lane_.reserve(lanes);
  for (size_t link = 0; link < dense_links; ++link) {
    const auto [from, to] = ends_[link];
    for (int64_t lane = 0; lane < lanes_[link]; ++lane) {
      const MicroBatchId b{lane};
      channel_of_lane_.push_back(
          channel_between(facts_.owner(from, b), facts_.owner(to, b), from > to));
    }
  }
}

void MessageIndex::number_hashed(size_t dense_links) {
  for_each_distant(facts_, [&](const Action& action) {
    const size_t number = link(action);
    if (number < dense_links) return;
    if (hashed_messages_.try_emplace(key(number, action.micro_batch.value), num_messages_).second)
      ++num_messages_;
    const auto [place, is_new] = hashed_channels_.try_emplace(
        key(number, action.micro_batch.value % lanes_[number]), num_channels_);
    if (!is_new) return;
    if (!facts_.table.has_shared_workers()) {
      ++num_channels_;
    } else {
      const auto [from, to] = ends_[number];
      place->second = channel_between(facts_.owner(from, action.micro_batch),
                                      facts_.owner(to, action.micro_batch), from > to);
    }
  });
}

size_t MessageIndex::channel_between(WorkerId from, WorkerId to, bool backward) {
  const uint64_t workers = (static_cast<uint64_t>(from.value) << 32) |
                           static_cast<uint64_t>(to.value) << 1 | (backward ? 1 : 0);
  const auto [place, is_new] = shared_channels_.try_emplace(workers, num_channels_);
  if (is_new) ++num_channels_;
  return place->second;
}

size_t MessageIndex::number_of(StageId from, StageId to) const {
  if (!is_distant(from, to)) return from < to ? 2 * from.index() : 2 * to.index() + 1;
  const auto found = distant_links_.find(pair_key(from, to));
  return found == distant_links_.end() ? num_links() : found->second;
}

size_t MessageIndex::link(const Action& action) const {
  return number_of(sender_of(action), receiver_of(action));
}

size_t MessageIndex::reverse(size_t link) const {
  return number_of(ends_[link].to, ends_[link].from);
}

size_t MessageIndex::find(const Action& action) const {
  const size_t number = link(action);
  if (number < first_hashed_link_) return message(action, number);
  const auto found = hashed_messages_.find(key(number, action.micro_batch.value));
  return found == hashed_messages_.end() ? num_messages_ : found->second;
}

size_t MessageIndex::channel(const Action& action) const {
  const size_t number = link(action);
  const int64_t lanes = lanes_[number];
  const int64_t lane = lanes == 1 ? 0 : action.micro_batch.value % lanes;
  if (number >= first_hashed_link_) return hashed_channels_.at(key(number, lane));
  const size_t place = first_lane_[number] + static_cast<size_t>(lane);
  return channel_of_lane_.empty() ? place : channel_of_lane_[place];
}

}  // namespace penstock::verify
