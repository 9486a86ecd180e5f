#include "penstock/schedule/formats/pytorch_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "penstock/schedule/formats/action_parser.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/formats/text_lines.h"
#include "penstock/schedule/schedule.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::schedule {
namespace {

/// One row while it is read.
class RowReader {
 public:
  RowReader(PyTorchCells& cells, PyTorchRow& row, const TextPlace& place, int64_t budget)
      : cells_(cells), row_(row), place_(place), budget_(budget) {}

  void read(std::string_view line) {
    for (cell_ = 1; !line.empty(); ++cell_) {
      const size_t comma = std::min(line.find(','), line.size());
      read_cell(unquoted(trimmed(line.substr(0, comma))));
      line.remove_prefix(std::min(comma + 1, line.size()));
    }
    const auto is_sending = [](const Pending& each) { return is_send(std::get<Op>(each)); };
    cells_.sends_without_wait += std::count_if(pending_.begin(), pending_.end(), is_sending);
  }

 private:
  static std::string_view unquoted(std::string_view text) {
    const bool in_quotes = text.size() >= 2 && text.front() == '"' && text.back() == '"';
    return in_quotes ? trimmed(text.substr(1, text.size() - 2)) : text;
  }

  [[noreturn]] void fail(std::string_view text, std::string_view message) const {
    place_.fail(fmt::format("action {} {}: {}", cell_, in_quotes(text), message));
  }

  void read_cell(std::string_view text) {
    if (text.empty()) return;
    if (text[0] != '(') {
      read_action(text);
      return;
    }
    const size_t before = row_.actions.size();
    for (const std::string_view part : overlapped_texts(text, place_, cell_)) read_action(part);
    std::vector<Action>& actions = row_.actions;
    if (actions.size() == before + 2) {
      Action& first = actions[before];
      Action& second = actions[before + 1];
      if (can_overlap(second, first)) std::swap(first, second);
      first.with_next = can_overlap(first, second);
      if (first.with_next) return;
    }
    row_.overlaps.emplace_back(before, actions.size());
  }

  void read_action(std::string_view text) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view word = text.substr(digits);
    if (digits > 0 && (word == "UNSHARD" || word == "RESHARD")) {
      ++cells_.shards;
      return;
    }
    if (digits > 0 && word.starts_with(kWait)) {
      end_wait(text, word.starts_with("WAIT_REDUCE") ? reduction(text, digits, kWaitReduce)
                                                     : waited_send(text, digits));
      return;
    }
    if (static_cast<int64_t>(row_.actions.size()) >= budget_)
      place_.fail(fmt::format("more than {} actions", kMaxActions));
    row_.actions.push_back(digits > 0 && word.starts_with(kReduce)
                               ? reduction(text, digits, kReduce)
                               : action(text, word));
    const Action& read = row_.actions.back();
    if (is_send(read.op) || read.op == Op::SyncGradients) pending_.insert(key_of(read));
  }

  using Pending = std::tuple<Op, StageId, MicroBatchId>;
  static Pending key_of(const Action& a) { return {a.op, a.stage, a.micro_batch}; }

  /// The send that a WAIT_SEND waits for: the same text without the word.
  Action waited_send(std::string_view text, size_t digits) const {
    const std::string_view sent = text.substr(digits + kWait.size());
    if (!sent.starts_with(to_string(Op::SendForward)) &&
        !sent.starts_with(to_string(Op::SendBackward)))
      fail(text, "expected WAIT_SEND_F, WAIT_SEND_B or WAIT_REDUCE_GRAD");
    return parse_action(std::string(text.substr(0, digits)).append(sent), place_, cell_);
  }

  void end_wait(std::string_view text, const Action& waited) {
    if (pending_.erase(key_of(waited)) == 0)
      fail(text, fmt::format("expected the {} that it waits for before it in its row",
                             waited.op == Op::SyncGradients ? kReduce : to_string(waited.op)));
    ++cells_.waits;
  }

  Action action(std::string_view text, std::string_view word) const {
    if (word.starts_with("BW"))
      fail(text, "BW is how an early version of PyTorch wrote B, and B was I there; rename both");
    const Action action = parse_action(text, place_, cell_);
    if (!(is_compute(action.op) && action.op != Op::Recompute) && !is_message(action.op)) {
      fail(text, "needs the header of a penstock schedule ('# penstock schedule 1')");
    }
    if (action.version.value >= 0)
      fail(text,
           "weight versions need the header of a penstock schedule ('# penstock schedule 1')");
    if (text.find_first_of("<>") != std::string_view::npos) {
      fail(text,
           "the other stage of a message needs the header of a penstock schedule ('# penstock "
           "schedule 1')");
    }
    return action;
  }

  /// REDUCE_GRAD, with or without a number behind it, as the SYNC of the only mini-batch.
  Action reduction(std::string_view text, size_t digits, std::string_view word) const {
    if (!text.substr(digits).starts_with(word)) fail(text, fmt::format("expected {}", word));
    const std::string_view number = text.substr(digits + word.size());
    if (!number.empty() && !parse_count(number))
      fail(text, fmt::format("expected nothing or a number behind {}", word));
    const std::optional<int64_t> stage = parse_count(text.substr(0, digits));
    if (!stage || *stage >= INT32_MAX) fail(text, "the stage is too large");
    const StageId id{static_cast<int32_t>(*stage)};
    return {.op = Op::SyncGradients, .stage = id, .micro_batch = {}, .mini_batch = {}, .peer = id};
  }

  static constexpr std::string_view kReduce = "REDUCE_GRAD";
  static constexpr std::string_view kWaitReduce = "WAIT_REDUCE_GRAD";
  static constexpr std::string_view kWait = "WAIT_";

  PyTorchCells& cells_;
  PyTorchRow& row_;
  const TextPlace& place_;
  int64_t budget_;
  int64_t cell_ = 0;
  std::set<Pending> pending_;  ///< what nothing has waited for
};

bool is_empty(const PyTorchRow& row) {
  return std::all_of(row.actions.begin(), row.actions.end(),
                     [](const Action& a) { return a.op == Op::SyncGradients; });
}

}  // namespace

PyTorchCells read_pytorch_cells(std::string_view text, std::string_view place) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  PyTorchCells cells;
  int64_t empty_line = 0;
  int64_t budget = kMaxActions;
  for (TextLines lines(text); lines.next();) {
    if (lines.line().starts_with('#')) continue;
    const TextPlace here{place, lines.number()};
    PyTorchRow row{lines.number()};
    RowReader(cells, row, here, budget).read(lines.line());
    if (is_empty(row)) {
      if (empty_line == 0) empty_line = row.line;
      continue;
    }
    cells.first_empty_line = empty_line;
    budget -= static_cast<int64_t>(row.actions.size());
    cells.rows.push_back(std::move(row));
  }
  if (cells.rows.empty()) throw ParseError(place, 0, "expected a schedule, found no action");
  return cells;
}

}  // namespace penstock::schedule
