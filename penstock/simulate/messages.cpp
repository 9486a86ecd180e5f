#include "penstock/simulate/messages.h"

#include <algorithm>
#include <compare>
#include <unordered_map>
#include <utility>

#include "penstock/simulate/network.h"

namespace penstock::simulate::detail {

using schedule::Action;
using schedule::Op;
using schedule::Schedule;

namespace {

struct PairHash {
  size_t operator()(const std::pair<int64_t, int64_t>& key) const {
    return std::hash<uint64_t>{}(static_cast<uint64_t>(key.first) * 0x9E3779B97F4A7C15ULL ^ static_cast<uint64_t>(key.second));
  }
};
using PairIndex = std::unordered_map<std::pair<int64_t, int64_t>, int32_t, PairHash>;

int32_t index_of(PairIndex& index, std::pair<int64_t, int64_t> key) {
  return index.try_emplace(key, static_cast<int32_t>(index.size())).first->second;
}

// One end of a message; `stages` is lower * stages + upper of the link, so that both ends agree on it.
struct End {
  int64_t stages = 0;
  bool backward = false;
  int64_t micro_batch = 0;
  bool receives = false;
  int32_t worker = 0;
  int64_t action = 0;

  auto operator<=>(const End&) const = default;
  bool same_message(const End& other) const {
    return stages == other.stages && backward == other.backward && micro_batch == other.micro_batch;
  }
};

int64_t link_key(int64_t from, int64_t to, int64_t num_stages) { return from * num_stages + to; }

End end_of(const Action& action, int32_t worker, int64_t index, int64_t num_stages) {
  const bool backward = action.op == Op::SendBackward || action.op == Op::RecvBackward;
  const bool receives = schedule::is_receive(action.op);
  // The link as the activations travel: a forward send or a backward receive stands at its start.
  const bool at_start = backward == receives;
  const int64_t from = at_start ? action.stage.value : action.peer.value;
  const int64_t to = at_start ? action.peer.value : action.stage.value;
  return {link_key(from, to, num_stages), backward, action.micro_batch.value, receives, worker, index};
}

class Pairing {
 public:
  Pairing(const Schedule& schedule, const Costs& costs) : schedule_(schedule), num_stages_(schedule.shape.num_stages()) {
    for (const LinkCost& link : costs.links) {
      transfer_ns_[link_key(link.from.value, link.to.value, num_stages_)] = transfer_ns(link.bytes, costs.bandwidth_bytes_per_s);
    }
  }

  MessageTable run() {
    collect();
    std::sort(ends_.begin(), ends_.end());
    for (size_t begin = 0; begin < ends_.size();) {
      size_t end = begin + 1;
      while (end < ends_.size() && ends_[end].same_message(ends_[begin])) ++end;
      pair_range(begin, end);
      begin = end;
    }
    assign_channels();
    return std::move(table_);
  }

 private:
  void collect() {
    PairIndex groups;
    int64_t next = 0;
    table_.slot.assign(static_cast<size_t>(schedule_.num_actions()), -1);
    for (size_t w = 0; w < schedule_.workers.size(); ++w) {
      table_.first_action.push_back(next);
      for (const Action& action : schedule_.workers[w]) {
        if (schedule::is_message(action.op)) {
          ends_.push_back(end_of(action, static_cast<int32_t>(w), next, num_stages_));
        } else if (action.op == Op::SyncGradients) {
          const int32_t group = index_of(groups, {action.stage.value, action.mini_batch.value});
          if (group == static_cast<int32_t>(table_.group_size.size())) {
            table_.group_size.push_back(schedule_.shape.replicas[action.stage.index()]);
          }
          table_.slot[static_cast<size_t>(next)] = group;
        }
        ++next;
      }
    }
  }

  // ends_[begin, end) are all ends of one message key, sends first.
  void pair_range(size_t begin, size_t end) {
    size_t middle = begin;
    while (middle < end && !ends_[middle].receives) ++middle;
    const size_t count = std::max(middle - begin, end - middle);
    for (size_t k = 0; k < count; ++k) {
      Message message;
      const auto bytes = transfer_ns_.find(ends_[begin].stages);
      message.transfer_ns = bytes == transfer_ns_.end() ? 0 : bytes->second;
      backward_.push_back(ends_[begin].backward);
      const auto id = static_cast<int32_t>(table_.messages.size());
      if (begin + k < middle) {
        message.sender = ends_[begin + k].worker;
        table_.slot[static_cast<size_t>(ends_[begin + k].action)] = id;
      }
      if (middle + k < end) {
        message.receiver = ends_[middle + k].worker;
        table_.slot[static_cast<size_t>(ends_[middle + k].action)] = id;
      }
      table_.messages.push_back(message);
    }
  }

  void assign_channels() {
    PairIndex channels;
    std::vector<int64_t> counts;
    for (size_t m = 0; m < table_.messages.size(); ++m) {
      Message& message = table_.messages[m];
      message.channel = index_of(channels, {int64_t{message.sender} * 2 + (backward_[m] ? 1 : 0), message.receiver});
      if (message.channel == static_cast<int32_t>(counts.size())) counts.push_back(0);
      ++counts[static_cast<size_t>(message.channel)];
    }
    table_.channel_begin.push_back(0);
    for (const int64_t count : counts) table_.channel_begin.push_back(table_.channel_begin.back() + count);
  }

  const Schedule& schedule_;
  const int64_t num_stages_;
  std::unordered_map<int64_t, int64_t> transfer_ns_;
  std::vector<End> ends_;
  std::vector<bool> backward_;
  MessageTable table_;
};

}  // namespace

MessageTable pair_messages(const Schedule& schedule, const Costs& costs) { return Pairing(schedule, costs).run(); }

}  // namespace penstock::simulate::detail
