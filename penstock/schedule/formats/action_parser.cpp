#include "penstock/schedule/formats/action_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::schedule {
namespace {

constexpr std::array kOps = {
    Op::Forward,      Op::Backward,      Op::BackwardInput, Op::BackwardWeight, Op::Recompute,
    Op::Offload,      Op::Load,          Op::SendForward,   Op::RecvForward,    Op::SendBackward,
    Op::RecvBackward, Op::SyncGradients, Op::NormGradients, Op::Step,           Op::FreeWeights};
/// Words that occur only in PyTorch's notation.
constexpr std::array<std::string_view, 6> kPyTorchOnly = {
    "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD", "WAIT_SEND_F", "WAIT_SEND_B"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// One action while it is read from left to right.
class ActionReader {
 public:
  ActionReader(std::string_view text, const TextPlace& place, int64_t cell)
      : text_(text), rest_(text), place_(place), cell_(cell) {}

  Action read() {
    Action action;
    action.stage = StageId{stage("a stage number first")};
    action.op = op();
    const int64_t index =
        number(has_micro_batch(action.op) ? "a micro-batch number" : "a mini-batch number");
    if (has_micro_batch(action.op)) {
      action.micro_batch = MicroBatchId{index};
    } else {
      action.mini_batch = MiniBatchId{index};
    }
    action.peer = is_message(action.op) ? peer(action) : action.stage;
    if (!rest_.empty() && rest_[0] == '@') version(action);
    if (!rest_.empty())
      fail(fmt::format("expected the end of the action, found {}", in_quotes(rest_)));
    return action;
  }

 private:
  static std::string only_pytorch(std::string_view name) {
    return fmt::format("{} belongs to PyTorch's CSV, which has no '# penstock schedule' header",
                       name);
  }
  [[noreturn]] void fail(std::string_view message) const {
    place_.fail(fmt::format("action {} {}: {}", cell_, in_quotes(text_), message));
  }

  int64_t number(std::string_view expected) {
    const auto digits =
        static_cast<size_t>(std::find_if_not(rest_.begin(), rest_.end(), is_digit) - rest_.begin());
    if (digits == 0) fail(fmt::format("expected {}", expected));
    const std::optional<int64_t> value = parse_count(rest_.substr(0, digits));
    if (!value) fail(fmt::format("the number {} is too large", in_quotes(rest_.substr(0, digits))));
    rest_.remove_prefix(digits);
    return *value;
  }

  int32_t stage(std::string_view expected) {
    const int64_t value = number(expected);
    if (value >= INT32_MAX) fail(fmt::format("stage {} is too large", value));
    return static_cast<int32_t>(value);
  }

  Op op() {
    const auto is_name = [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    };
    const auto letters =
        static_cast<size_t>(std::find_if_not(rest_.begin(), rest_.end(), is_name) - rest_.begin());
    const std::string_view name = rest_.substr(0, letters);
    for (const Op op : kOps) {
      if (to_string(op) == name) {
        rest_.remove_prefix(letters);
        return op;
      }
    }
    if (std::find(kPyTorchOnly.begin(), kPyTorchOnly.end(), name) != kPyTorchOnly.end())
      fail(only_pytorch(name));
    fail(
        fmt::format("unknown operation {}, expected F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, "
                    "SYNC, NORM, STEP or FREE",
                    in_quotes(name)));
  }

  StageId peer(const Action& action) {
    const char sign = is_send(action.op) ? '>' : '<';
    if (!rest_.empty() && (rest_[0] == '>' || rest_[0] == '<')) {
      if (rest_[0] != sign)
        fail(fmt::format("expected '{}' before the other stage, found '{}'", sign, rest_[0]));
      rest_.remove_prefix(1);
      return StageId{stage("the other stage's number")};
    }
    const bool later = action.op == Op::SendForward || action.op == Op::RecvBackward;
    if (!later && action.stage.value == 0) fail("stage 0 has no earlier stage to talk to");
    return StageId{action.stage.value + (later ? 1 : -1)};
  }

  void version(Action& action) {
    if (!is_compute(action.op) && action.op != Op::Step && action.op != Op::FreeWeights) {
      fail("only F, B, I, W, R, STEP and FREE carry a weight version");
    }
    rest_.remove_prefix(1);
    action.version = WeightVersion{number("a weight version after '@'")};
    if (rest_.empty() || (rest_[0] != '+' && rest_[0] != '-')) return;
    if (!is_compute(action.op)) fail("only the weights of F, B, I, W and R are moved by steps");
    const bool is_back = rest_[0] == '-';
    rest_.remove_prefix(1);
    const int64_t steps = number("a number of steps after the sign");
    if (steps < 1 || steps > INT32_MAX)
      fail(fmt::format("weights cannot be moved by {} steps", steps));
    action.ahead = static_cast<int32_t>(is_back ? -steps : steps);
  }

  std::string_view text_;
  std::string_view rest_;
  const TextPlace& place_;
  int64_t cell_;
};

}  // namespace

void TextPlace::fail(std::string_view message) const { throw ParseError(name, line, message); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

std::vector<std::string_view> overlapped_texts(std::string_view text, const TextPlace& place,
                                               int64_t cell) {
  const auto fail = [&](std::string_view message) {
    place.fail(fmt::format("action {} {}: {}", cell, in_quotes(text), message));
  };
  const size_t end = text.find(')');
  if (end == std::string_view::npos || text.substr(end + 1) != kOverlapWord)
    fail(fmt::format("expected actions in parentheses and {} behind them", kOverlapWord));
  std::vector<std::string_view> parts;
  for (std::string_view rest = text.substr(1, end - 1); !rest.empty();) {
    const size_t semicolon = std::min(rest.find(';'), rest.size());
    parts.push_back(trimmed(rest.substr(0, semicolon)));
    if (parts.back().empty()) fail("expected an action between the semicolons");
    rest.remove_prefix(std::min(semicolon + 1, rest.size()));
  }
  if (parts.empty()) fail("expected actions in the parentheses");
  return parts;
}

Action parse_action(std::string_view text, const TextPlace& place, int64_t cell) {
  return ActionReader(text, place, cell).read();
}

std::vector<Action> parse_actions(std::string_view line, const TextPlace& place,
                                  int64_t max_actions) {
  std::vector<Action> actions;
  int64_t cell = 0;
  while (!line.empty()) {
    const size_t comma = std::min(line.find(','), line.size());
    const std::string_view text = trimmed(line.substr(0, comma));
    line.remove_prefix(std::min(comma + 1, line.size()));
    ++cell;
    if (text.empty()) continue;
    const auto add = [&](std::string_view one) {
      if (static_cast<int64_t>(actions.size()) >= max_actions)
        place.fail(fmt::format("more than {} actions", max_actions));
      actions.push_back(parse_action(one, place, cell));
    };
    if (text[0] != '(') {
      add(text);
      continue;
    }
    const size_t before = actions.size();
    for (const std::string_view part : overlapped_texts(text, place, cell)) {
      if (actions.size() > before) actions.back().with_next = true;
      add(part);
    }
    if (actions.size() == before + 1) actions.back().with_next = true;
  }
  return actions;
}

}  // namespace penstock::schedule
