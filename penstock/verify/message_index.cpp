#include "penstock/verify/message_index.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "penstock/util/arithmetic.h"

namespace penstock::verify {
namespace {

bool is_distant(const Action& action) { return is_message(action.op) && std::abs(action.peer.value - action.stage.value) != 1; }

uint64_t pair_key(const Action& action) {
  return (static_cast<uint64_t>(sender_of(action).value) << 32) | static_cast<uint32_t>(receiver_of(action).value);
}

template <class Visit>
void for_each_distant(const Facts& facts, Visit visit) {
  for (const auto& list : facts.workers()) {
    for (const Action& action : list) {
      if (is_distant(action)) visit(action);
    }
  }
}

}  // namespace

MessageIndex::MessageIndex(const Facts& facts) : facts_(facts) {
  for (int32_t s = 0; s + 1 < facts.num_stages; ++s) {
    add_link(StageId{s}, StageId{s + 1});
    add_link(StageId{s + 1}, StageId{s});
  }
  const size_t neighbours = lanes_.size();
  int64_t distant_messages = 0;
  for_each_distant(facts, [&](const Action& action) {
    ++distant_messages;
    if (distant_links_.try_emplace(pair_key(action), lanes_.size()).second) add_link(sender_of(action), receiver_of(action));
  });
  const auto distant = static_cast<int64_t>(lanes_.size() - neighbours);
  if (saturating_mul(distant, facts.micro_batches) > 4 * distant_messages + 4096) first_hashed_link_ = neighbours;

  const size_t dense_links = std::min(lanes_.size(), first_hashed_link_);
  num_messages_ = dense_links * static_cast<size_t>(facts.micro_batches);
  first_channel_.resize(dense_links);
  for (size_t link = 0; link < dense_links; ++link) {
    first_channel_[link] = num_channels_;
    num_channels_ += static_cast<size_t>(lanes_[link]);
  }
  if (dense_links < lanes_.size()) number_hashed_messages();
}

void MessageIndex::add_link(StageId from, StageId to) {
  const int64_t lanes = std::lcm(int64_t{facts_.table.replicas(from)}, int64_t{facts_.table.replicas(to)});
  lanes_.push_back(std::min(lanes, std::max<int64_t>(facts_.micro_batches, 1)));
}

void MessageIndex::number_hashed_messages() {
  for_each_distant(facts_, [&](const Action& action) {
    const size_t number = link(action);
    if (hashed_messages_.try_emplace(key(number, action.micro_batch.value), num_messages_).second) ++num_messages_;
    if (hashed_channels_.try_emplace(key(number, action.micro_batch.value % lanes_[number]), num_channels_).second) ++num_channels_;
  });
}

size_t MessageIndex::link(const Action& action) const {
  if (is_distant(action)) return distant_links_.at(pair_key(action));
  const StageId from = sender_of(action);
  const StageId to = receiver_of(action);
  return from < to ? 2 * from.index() : 2 * to.index() + 1;
}

size_t MessageIndex::message(const Action& action) const {
  const size_t number = link(action);
  if (is_hashed(number)) return hashed_messages_.at(key(number, action.micro_batch.value));
  return number * static_cast<size_t>(facts_.micro_batches) + action.micro_batch.index();
}

size_t MessageIndex::channel(const Action& action) const {
  const size_t number = link(action);
  const int64_t lane = action.micro_batch.value % lanes_[number];
  if (is_hashed(number)) return hashed_channels_.at(key(number, lane));
  return first_channel_[number] + static_cast<size_t>(lane);
}

}  // namespace penstock::verify
