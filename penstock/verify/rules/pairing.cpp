// pairing: every message that is sent is received exactly once by the stage it goes to and the other way round, and every micro-batch uses
// the same links as its stage's other micro-batches, in each direction.
//
// Smallest schedule that breaks it: two stages, one micro-batch, `0F0,0SEND_F0` on worker 0 and `1F0` without `1RECV_F0` on worker 1.
#include <vector>

#include "penstock/verify/message_index.h"
#include "penstock/verify/rules/rules.h"

namespace penstock::verify {
namespace {

/// How often a message is sent and received, counted up to 2.
struct Ends {
  uint8_t sends = 0;
  uint8_t receives = 0;
};

std::vector<Ends> count_ends(const Facts& facts, const MessageIndex& index) {
  std::vector<Ends> ends(index.num_messages());
  for (const auto& list : facts.workers()) {
    for (const Action& action : list) {
      if (!is_message(action.op)) continue;
      Ends& message = ends[index.message(action)];
      uint8_t& count = is_send(action.op) ? message.sends : message.receives;
      if (count < 2) ++count;
    }
  }
  return ends;
}

void report_ends(const Facts& facts, const MessageIndex& index, const std::vector<Ends>& ends, Report& report) {
  for (size_t w = 0; w < facts.workers().size() && !report.full(); ++w) {
    for (const Action& action : facts.workers()[w]) {
      if (!is_message(action.op)) continue;
      const Ends& message = ends[index.message(action)];
      if (message.sends == 1 && message.receives == 1) continue;
      const bool sends = is_send(action.op);
      const WorkerId worker{static_cast<int32_t>(w)};
      const int32_t peer = facts.table.worker_of(action.peer, action.micro_batch).value;
      if ((sends ? message.receives : message.sends) == 0) {
        report.add("pairing", worker, action, "worker {} never {} it", peer, sends ? "receives" : "sends");
      } else if ((sends ? message.sends : message.receives) > 1) {
        report.add("pairing", worker, action, "occurs more than once");
      }
    }
  }
}

/// Number of links that carry messages to a stage, by direction, and how many of them each compute action was given.
struct Inputs {
  std::vector<int32_t> forward;
  std::vector<int32_t> backward;
};

/// A forward must receive along every link that any forward of its stage receives along; backwards likewise.
void check_links(const Facts& facts, const MessageIndex& index, Report& report) {
  Inputs of_stage{std::vector<int32_t>(static_cast<size_t>(facts.num_stages)), std::vector<int32_t>(static_cast<size_t>(facts.num_stages))};
  Inputs of_cell{std::vector<int32_t>(facts.num_cells()), std::vector<int32_t>(facts.num_cells())};
  std::vector<uint8_t> link_seen(index.num_links(), 0);
  std::vector<uint8_t> stage_talks(static_cast<size_t>(facts.num_stages), 0);
  for (const auto& list : facts.workers()) {
    for (const Action& action : list) {
      if (is_message(action.op)) stage_talks[action.stage.index()] = 1;
      if (!is_receive(action.op)) continue;
      const bool forward = action.op == Op::RecvForward;
      uint8_t& seen = link_seen[index.link(action)];
      if (seen == 0) ++(forward ? of_stage.forward : of_stage.backward)[action.stage.index()];
      seen = 1;
      ++(forward ? of_cell.forward : of_cell.backward)[facts.cell(action.stage, action.micro_batch)];
    }
  }
  for (size_t w = 0; w < facts.workers().size() && !report.full(); ++w) {
    for (const Action& action : facts.workers()[w]) {
      if (!is_compute(action.op)) continue;
      const bool forward = action.op == Op::Forward;
      const int32_t expected = (forward ? of_stage.forward : of_stage.backward)[action.stage.index()];
      const int32_t found = (forward ? of_cell.forward : of_cell.backward)[facts.cell(action.stage, action.micro_batch)];
      if (found < expected) {
        report.add("pairing", WorkerId{static_cast<int32_t>(w)}, action, "receives {} messages, the stage receives along {} links", found,
                   expected);
      }
    }
  }
  if (facts.num_stages == 1 || facts.micro_batches == 0) return;
  for (int32_t s = 0; s < facts.num_stages; ++s) {
    if (stage_talks[static_cast<size_t>(s)] == 0) report.add("pairing", WorkerId{-1}, "stage {} exchanges no message with any other", s);
  }
}

}  // namespace

void check_pairing(const Facts& facts, Report& report) {
  if (!facts.schedule.lowered) return;
  const MessageIndex index(facts);
  report_ends(facts, index, count_ends(facts, index), report);
  check_links(facts, index, report);
}

}  // namespace penstock::verify
