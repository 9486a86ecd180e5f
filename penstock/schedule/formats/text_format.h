// The text form of a schedule: one line per worker, comma-separated, in the notation of PyTorch's
// pipelining module, extended where it lacks a word. It parses back to the same value.
//
//   # penstock schedule 1
//   # kind: 1f1b
//   # replicas: 1 1
//   # micro-batches: 4  accumulate: 1  weights: stash
//   # lowered: yes
//   0F0@0,0SEND_F0,0F1@0,0SEND_F1,0RECV_B0,0B0@0,0STEP0@0,...
//   1RECV_F0,1F0@0,1B0@0,1SEND_B0,...
//
// An action is `<stage><OP><micro-batch>`; STEP, SYNC, NORM and FREE carry the mini-batch; "@v" is
// the weight version; a message between stages that are not neighbours names the other stage:
// 0SEND_F3>2, 2RECV_F3<0. (0F3@0;7B1@0)OVERLAP_F_B runs F and B together (Action::with_next). FREE
// is `<stage>FREE<mini-batch>@<version>`. After the header every line is a worker, also an empty
// line. Other lines that begin with # are comments, except that a header line `# word: ...` with an
// unknown word is refused. "lowered" may be missing: then it is "no" if the actions are only F, B,
// I and W without versions, otherwise "yes". These keys are written only where they differ from
// their default:
//
//   # hosts: 0 1 1 0      ScheduleShape::worker_of_replica, the worker of each replica
//   # teams: 2 1          ScheduleShape::teams: the first two stages are members of one team
//   # slack: 1            ScheduleShape::slack
//   # recompute: 0 2      the stages that recompute
//   # norm: yes           ScheduleShape::global_norm
//
// Files without the header are read as PyTorch's CSV (pytorch_csv.h). Spaces around actions are
// ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

std::string to_text(const Schedule& schedule);

/// Throws ParseError(place, line, ...) naming the action, what was found and what was expected;
/// refuses files that describe more than kMaxActions actions. The result may still break rules:
/// verify() says which. `notes` receives sentences for the user: what PyTorch's CSV said that the
/// schedule cannot hold. parse_schedule(to_text(s)) == s, except that a `recompute` without any
/// stage becomes empty.
Schedule parse_schedule(std::string_view text, std::string_view place,
                        std::vector<std::string>* notes = nullptr);

/// "2F0@3", for messages and reports.
std::string to_text(const Action& action);
/// The same, appended to `text`; for callers that write many.
void append_text(std::string& text, const Action& action);

/// Writes a list's actions between commas, those that run together as (0F3;7B1)OVERLAP_F_B. Call
/// end() behind the last one.
class ListText {
 public:
  explicit ListText(std::string& text) : text_(text) {}

  /// Call before the action's own text is appended.
  void before(const Action& action);
  /// Call behind it.
  void after(const Action& action);
  void end();

 private:
  std::string& text_;
  bool is_first_ = true;
  bool is_open_ = false;  ///< inside the parentheses
};

}  // namespace penstock::schedule
