// Small dense numbers for links, messages and channels, so that the rules can keep their state in
// arrays.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "penstock/util/numbers/mixing_hash.h"
#include "penstock/verify/facts.h"

namespace penstock::verify {

/// Sender and receiver of a message action: SEND and its RECV agree on them.
inline StageId sender_of(const Action& action) {
  return is_send(action.op) ? action.stage : action.peer;
}
inline StageId receiver_of(const Action& action) {
  return is_send(action.op) ? action.peer : action.stage;
}

/// Numbers the links (sending stage, receiving stage), the messages (link, micro-batch) and the
/// channels (sending worker, receiving worker, direction) of a well-placed schedule (facts.h).
/// Links between neighbours are found by arithmetic, others in a hash table; where those carry too
/// few messages for a table over all micro-batches, their messages and channels are hashed too.
/// Memory is linear in the actions.
class MessageIndex {
 public:
  explicit MessageIndex(const Facts& facts);

  /// `action` is a message of the schedule, here and below.
  size_t link(const Action& action) const;
  size_t message(const Action& action) const { return message(action, link(action)); }
  size_t channel(const Action& action) const;
  /// Like message(), for a message on a link of the schedule that may not exist: then
  /// num_messages(), or a number whose message does not occur.
  size_t find(const Action& action) const;

  size_t num_links() const { return ends_.size(); }
  size_t num_messages() const { return num_messages_; }
  size_t num_channels() const { return num_channels_; }

  struct Ends {
    StageId from;
    StageId to;
  };
  Ends ends_of(size_t link) const { return ends_[link]; }
  /// The link in the other direction, or num_links() when it carries nothing and its stages are not
  /// neighbours.
  size_t reverse(size_t link) const;

 private:
  size_t message(const Action& action, size_t link) const {
    if (link >= first_hashed_link_) return hashed_messages_.at(key(link, action.micro_batch.value));
    return link * static_cast<size_t>(facts_.micro_batches) + action.micro_batch.index();
  }
  void add_link(StageId from, StageId to);
  void number_channels(size_t dense_links);
  void number_hashed(size_t dense_links);
  size_t channel_between(WorkerId from, WorkerId to, bool backward);
  size_t number_of(StageId from, StageId to) const;
  uint64_t key(size_t link, int64_t number) const {
    return link * static_cast<uint64_t>(facts_.micro_batches) + static_cast<uint64_t>(number);
  }

  const Facts& facts_;
  // the keys are numbers that a file chose
  using Table = std::unordered_map<uint64_t, size_t, MixingHash>;
  Table distant_links_;
  std::vector<Ends> ends_;  // by link
  /// By link: how many channels its messages use in turn (micro-batch b uses lane b mod lanes), and
  /// the first lane's number.
  std::vector<int64_t> lanes_;
  std::vector<size_t> first_lane_;
  size_t first_hashed_link_ = SIZE_MAX;
  /// Only where workers hold several stages, so that several lanes lead from one worker to another:
  /// the channel of each lane.
  std::vector<size_t> channel_of_lane_;
  Table shared_channels_;  // by workers and direction
  Table hashed_messages_;
  Table hashed_channels_;
  size_t num_messages_ = 0;
  size_t num_channels_ = 0;
};

}  // namespace penstock::verify
