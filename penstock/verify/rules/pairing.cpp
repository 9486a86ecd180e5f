// pairing: every message that is sent is received exactly once by the stage that it goes to, and
// every receive has its send; a link between two stages carries every micro-batch that the two run
// on different workers, and where the schedule trains its gradients come back; no stage is
// isolated. (check_placement() has refused messages from a worker to itself.)
//
// Smallest schedule that breaks it: two stages, one micro-batch, `0F0,0SEND_F0` on worker 0 and
// `1F0` without `1RECV_F0` on worker 1.
#include <algorithm>
#include <vector>

#include "penstock/verify/message_index.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

/// How often a message is sent and received, counted up to 2.
struct Ends {
  uint8_t sends : 4 = 0;
  uint8_t receives : 4 = 0;
};

constexpr uint8_t kForwardPass = 1;
constexpr uint8_t kBackwardPass = 2;

/// The search for micro-batches that a link leaves out takes at most this many steps, plus 8 for
/// each action. Links between neighbours never need more.
constexpr int64_t kMoreLocalSteps = 100'000'000;

class PairingCheck {
 public:
  PairingCheck(const Facts& facts, Report& report)
      : facts_(facts),
        report_(report),
        index_(facts),
        ends_(index_.num_messages()),
        carried_(index_.num_links(), 0),
        most_local_steps_(8 * facts.schedule.num_actions() + kMoreLocalSteps) {}

  void check() {
    bool sound = true;
    for (const auto& list : facts_.workers()) {
      for (const Action& action : list) {
        if (is_message(action.op)) sound = count(action) && sound;
      }
    }
    // The second walk reports messages with only one end; in a sound schedule each message has an
    // even number of ends.
    if (!sound || ends_found_ != 2 * messages_found_) report_ends();
    for (size_t link = 0; link < carried_.size() && !report_.full(); ++link) check_link(link);
    check_isolation();
  }

 private:
  /// False when the message already has this end.
  bool count(const Action& action) {
    const size_t link = index_.link(action);
    Ends& message = ends_[index_.message(action)];
    ++ends_found_;
    if (message.sends + message.receives == 0) {
      ++messages_found_;
      ++carried_[link];
    }
    if (is_send(action.op)) {
      if (message.sends == 0)
        ++message.sends;
      else
        message.sends = 2;
      return message.sends == 1;
    }
    if (message.receives == 0)
      ++message.receives;
    else
      message.receives = 2;
    return message.receives == 1;
  }

  void report_ends() {
    for (size_t w = 0; w < facts_.workers().size() && !report_.full(); ++w) {
      for (const Action& action : facts_.workers()[w]) {
        if (!is_message(action.op)) continue;
        const Ends& message = ends_[index_.message(action)];
        if (message.sends == 1 && message.receives == 1) continue;
        const bool sends = is_send(action.op);
        const WorkerId worker{static_cast<int32_t>(w)};
        const int32_t peer = facts_.owner(action.peer, action.micro_batch).value;
        if ((sends ? message.receives : message.sends) == 0) {
          report_.add("pairing", worker, action, "worker {} never {} it", peer,
                      sends ? "receives" : "sends");
        } else if ((sends ? message.sends : message.receives) > 1) {
          report_.add("pairing", worker, action, "occurs more than once");
        }
      }
    }
  }

  void check_link(size_t link) {
    if (carried_[link] == 0) return;
    const auto [from, to] = index_.ends_of(link);
    if (!facts_.forward_only) {
      const size_t reverse = index_.reverse(link);
      if (reverse == index_.num_links() || carried_[reverse] == 0) {
        report_.add("pairing", WorkerId{-1}, "stage {} sends {} to stage {}, {}", from.value,
                    from < to ? "outputs" : "gradients", to.value,
                    from < to ? "which sends no gradients back" : "which sends it no outputs");
      }
    }
    if (carried_[link] == facts_.micro_batches || local_steps_ > most_local_steps_) return;
    local_steps_ += facts_.micro_batches;
    if (local_steps_ > most_local_steps_) {
      report_.add("pairing", WorkerId{-1},
                  "too many links leave out micro-batches to check all of them; the first one not "
                  "checked leads "
                  "from stage {} to {}",
                  from.value, to.value);
      return;
    }
    if (computed_.empty()) find_computed();
    for (int64_t b = 0; b < facts_.micro_batches && !report_.full(); ++b)
      check_carried(from, to, MicroBatchId{b});
  }

  void find_computed() {
    computed_.resize(facts_.num_cells(), 0);
    for (const auto& list : facts_.workers()) {
      for (const Action& action : list) {
        if (!is_compute(action.op)) continue;
        computed_[facts_.cell(action.stage, action.micro_batch)] |=
            action.op == Op::Forward ? kForwardPass : kBackwardPass;
      }
    }
  }

  void check_carried(StageId from, StageId to, MicroBatchId b) {
    const WorkerId receiver = facts_.owner(to, b);
    const Action receive{.op = from < to ? Op::RecvForward : Op::RecvBackward,
                         .stage = to,
                         .micro_batch = b,
                         .mini_batch = facts_.schedule.shape.mini_batch_of(b),
                         .peer = from};
    // Micro-batches that the stage leaves out completely are not checked here.
    const bool needed =
        (computed_[facts_.cell(to, b)] & (from < to ? kForwardPass : kBackwardPass)) != 0;
    if (!needed || facts_.owner(from, b) == receiver) return;
    const size_t message = index_.find(receive);
    if (message != index_.num_messages() && ends_[message].sends + ends_[message].receives > 0)
      return;
    report_.add("pairing", receiver, receive,
                "is missing and not sent; other micro-batches use the link");
  }

  /// Stages that neither send nor receive, nor run a micro-batch on the same worker as another
  /// stage: the data between two stages of one worker does not appear in the schedule, and this
  /// rule does not know their layers.
  void check_isolation() {
    // The members of a team that is all there is talk inside their actions only.
    const bool one_team = facts_.schedule.shape.teams.size() == 1;
    if (facts_.num_stages == 1 || one_team || facts_.micro_batches == 0) return;
    std::vector<uint8_t> talks(static_cast<size_t>(facts_.num_stages), 0);
    for (size_t link = 0; link < carried_.size(); ++link) {
      if (carried_[link] == 0) continue;
      talks[index_.ends_of(link).from.index()] = 1;
      talks[index_.ends_of(link).to.index()] = 1;
    }
    const bool all_talk = std::find(talks.begin(), talks.end(), 0) == talks.end();
    if (!all_talk && facts_.table.has_shared_workers()) mark_meeting(talks);
    for (int32_t s = 0; s < facts_.num_stages && !report_.full(); ++s) {
      if (talks[static_cast<size_t>(s)] == 0) {
        report_.add("pairing", WorkerId{-1}, "stage {} exchanges no message with any other", s);
      }
    }
  }

  /// Marks the stages that run a micro-batch on a worker that runs it for another stage too.
  void mark_meeting(std::vector<uint8_t>& met) const {
    struct Visit {
      int32_t worker = -1;
      StageId stage;
    };
    std::vector<Visit> visits(static_cast<size_t>(facts_.micro_batches));
    for (size_t w = 0; w < facts_.workers().size(); ++w) {
      for (const Action& action : facts_.workers()[w]) {
        if (!is_compute(action.op)) continue;
        Visit& visit = visits[action.micro_batch.index()];
        if (visit.worker == static_cast<int32_t>(w) && visit.stage != action.stage) {
          met[visit.stage.index()] = met[action.stage.index()] = 1;
        } else {
          visit = {static_cast<int32_t>(w), action.stage};
        }
      }
    }
  }

  const Facts& facts_;
  Report& report_;
  MessageIndex index_;
  std::vector<Ends> ends_;        // by message
  std::vector<int64_t> carried_;  // by link: different messages
  // by cell: whether its forward and its backward occur; made when it is needed
  std::vector<uint8_t> computed_;
  int64_t ends_found_ = 0;
  int64_t messages_found_ = 0;
  int64_t local_steps_ = 0;
  int64_t most_local_steps_;
};

}  // namespace

void check_pairing(const Facts& facts, Report& report) {
  if (!facts.schedule.lowered) return;
  PairingCheck(facts, report).check();
}

}  // namespace penstock::verify
