// Small dense numbers for links, messages and channels, so that the rules can keep their state in arrays.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "penstock/verify/facts.h"

namespace penstock::verify {

/// Sender and receiver of a message action: SEND and its RECV agree on them.
inline StageId sender_of(const Action& action) { return is_send(action.op) ? action.stage : action.peer; }
inline StageId receiver_of(const Action& action) { return is_send(action.op) ? action.peer : action.stage; }

/// Numbers the links (sending stage, receiving stage), the messages (link, micro-batch) and the channels (sending worker, receiving worker)
/// of a well placed schedule. Links between neighbours are found by arithmetic, others in a hash table; where those carry so few messages
/// that a table over all micro-batches would be waste, their messages and channels are hashed too. Memory is linear in the actions.
class MessageIndex {
 public:
  explicit MessageIndex(const Facts& facts);

  /// `action` is a message of the schedule, here and below.
  size_t link(const Action& action) const;
  size_t message(const Action& action) const;
  size_t channel(const Action& action) const;

  size_t num_links() const { return lanes_.size(); }
  size_t num_messages() const { return num_messages_; }
  size_t num_channels() const { return num_channels_; }

 private:
  void add_link(StageId from, StageId to);
  void number_hashed_messages();
  uint64_t key(size_t link, int64_t number) const {
    return link * static_cast<uint64_t>(facts_.micro_batches) + static_cast<uint64_t>(number);
  }
  bool is_hashed(size_t link) const { return link >= first_hashed_link_; }

  const Facts& facts_;
  std::unordered_map<uint64_t, size_t> distant_links_;
  /// By link: how many channels its messages use in turn (micro-batch b uses lane b mod lanes), and the first one's number.
  std::vector<int64_t> lanes_;
  std::vector<size_t> first_channel_;
  size_t first_hashed_link_ = SIZE_MAX;
  std::unordered_map<uint64_t, size_t> hashed_messages_;
  std::unordered_map<uint64_t, size_t> hashed_channels_;
  size_t num_messages_ = 0;
  size_t num_channels_ = 0;
};

}  // namespace penstock::verify
