// The text form of a schedule: one line per worker, comma-separated, in the notation of PyTorch's pipelining module, extended where it
// lacks a word. It parses back to the same value.
//
//   # penstock schedule 1
//   # kind: 1f1b
//   # replicas: 1 1
//   # micro-batches: 4  accumulate: 1  weights: stash
//   # lowered: yes
//   0F0@0,0SEND_F0,0F1@0,0SEND_F1,0RECV_B0,0B0@0,0STEP0@0,...
//   1RECV_F0,1F0@0,1B0@0,1SEND_B0,...
//
// An action is <stage><OP><micro-batch>; STEP and SYNC carry the mini-batch; "@v" is the weight version; a message to or from a stage that
// is not the neighbour says which: 0SEND_F3>2, 2RECV_F3<0. FREE is <stage>FREE<mini-batch>@<version>. After the header every line is a
// worker, an empty one too; lines that begin with # are comments. "lowered" may be missing: then it is yes if anything but F and B without
// versions occurs.
//
// Files without the header are taken as the CSV that PyTorch writes (compute only or with sends and receives; empty cells are idle
// time): stages, replicas and micro-batches are inferred, all micro-batches form one mini-batch with one step at the end (SYNC, FREE and
// STEP are added when sends and receives are there). Rows are sorted by stage. Spaces around actions are ignored.
#pragma once

#include <string>
#include <string_view>

#include "penstock/schedule/schedule.h"

namespace penstock::schedule {

std::string to_text(const Schedule& schedule);

/// Throws ParseError(place, line, ...) naming the action, what was found and what was expected; refuses files that describe
/// more than kMaxActions actions. The result may still break rules: verify() says which.
Schedule parse_schedule(std::string_view text, std::string_view place);

/// "2F0@3", for messages and reports.
std::string to_text(const Action& action);

}  // namespace penstock::schedule
