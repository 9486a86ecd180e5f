#include "penstock/schedule/formats/text_format.h"

#include <array>
#include <charconv>

#include "penstock/schedule/formats/action_parser.h"

namespace penstock::schedule {
namespace {

void append_number(std::string& text, int64_t number) {
  std::array<char, 24> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number).ptr;
  text.append(buffer.data(), end);
}

/// The stage that a message goes to or comes from when the text does not name one.
int32_t default_peer(const Action& action) {
  const bool later = action.op == Op::SendForward || action.op == Op::RecvBackward;
  return action.stage.value + (later ? 1 : -1);
}

void append_numbers(std::string& text, std::string_view key, const std::vector<int>& numbers) {
  text += "\n# ";
  text += key;
  text += ':';
  for (const int number : numbers) {
    text += ' ';
    append_number(text, number);
  }
}

/// The keys that are left out where they have their default values.
void append_rare_keys(std::string& text, const ScheduleShape& shape) {
  if (shape.compensation != Compensation::None) {
    text += "\n# compensate: ";
    text += to_string(shape.compensation);
  }
  if (shape.slack != 0) {
    text += "\n# slack: ";
    append_number(text, shape.slack);
  }
  std::vector<int> recompute;
  std::vector<int> offload;
  for (int s = 0; s < shape.num_stages(); ++s) {
    if (shape.recomputes(StageId{s})) recompute.push_back(s);
    if (shape.offloads(StageId{s})) offload.push_back(s);
  }
  if (!recompute.empty()) append_numbers(text, "recompute", recompute);
  if (!offload.empty()) append_numbers(text, "offload", offload);
  if (shape.global_norm) text += "\n# norm: yes";
}

}  // namespace

void append_text(std::string& text, const Action& action) {
  append_number(text, action.stage.value);
  text += to_string(action.op);
  append_number(text,
                has_micro_batch(action.op) ? action.micro_batch.value : action.mini_batch.value);
  if (is_message(action.op)) {
    if (action.peer.value == default_peer(action)) return;
    text += is_send(action.op) ? '>' : '<';
    append_number(text, action.peer.value);
  } else if (action.version.value >= 0) {
    text += '@';
    append_number(text, action.version.value);
    if (action.ahead > 0) text += '+';
    if (action.ahead != 0) append_number(text, action.ahead);
  }
}

void ListText::before(const Action& action) {
  if (is_open_) {
    text_ += ';';
  } else {
    if (!is_first_) text_ += ',';
    if (action.with_next) text_ += '(';
  }
  is_first_ = false;
  is_open_ = is_open_ || action.with_next;
}

void ListText::after(const Action& action) {
  if (!action.with_next) end();
}

void ListText::end() {
  if (is_open_) {
    text_ += ')';
    text_ += kOverlapWord;
  }
  is_open_ = false;
}

std::string to_text(const Action& action) {
  std::string text;
  append_text(text, action);
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text = "# penstock schedule 1\n# kind: " + schedule.kind;
  text.reserve(text.size() + static_cast<size_t>(schedule.num_actions()) * 10);
  append_numbers(text, "replicas", schedule.shape.replicas);
  if (!schedule.shape.worker_of_replica.empty())
    append_numbers(text, "hosts", schedule.shape.worker_of_replica);
  if (!schedule.shape.teams.empty()) append_numbers(text, "teams", schedule.shape.teams);
  text += "\n# micro-batches: ";
  append_number(text, schedule.shape.micro_batches);
  text += "  accumulate: ";
  append_number(text, schedule.shape.accumulate);
  text += "  weights: ";
  text += to_string(schedule.shape.policy);
  append_rare_keys(text, schedule.shape);
  text += schedule.lowered ? "\n# lowered: yes\n" : "\n# lowered: no\n";
  for (const auto& list : schedule.workers) {
    ListText written(text);
    for (const Action& action : list) {
      written.before(action);
      append_text(text, action);
      written.after(action);
    }
    written.end();
    text += '\n';
  }
  return text;
}

}  // namespace penstock::schedule
