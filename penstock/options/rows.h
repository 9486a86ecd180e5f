// The options of a training as rows of one table. From a row come: the option on the command line
// with its help, the keyword in Python, what a resumed run must plan anew for or be warned of, the
// warning that an option has no effect, and its line in docs/options.md.
//
//   for (const Row& row : train_rows()) fmt::print("{} {}\n", row.name, row.help);
//
// To add an option: a member in request.h, a row in rows.cpp, and the code that uses the value
// (docs/extending.md).
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/options/request.h"
#include "penstock/plan/plan.h"

namespace penstock::options {

/// A member whose values have names. Empty text: not chosen.
struct Named {
  std::function<void(const std::string& name)> set;  ///< throws ConfigError for names of none
  std::function<std::string()> text;
};
/// A flag that switches off what is usual.
struct Off {
  bool* value;
};
/// Where the value of a row lies in a request.
using Slot = std::variant<bool*, Off, int*, int64_t*, uint64_t*, double*, std::string*,
                          std::optional<int64_t>*, std::optional<std::string>*, Named>;

enum class Section : uint8_t { Model, Data, Loss, Plan, Learning, Run, Output };
std::string_view to_string(Section section);

/// What another value of the option changes.
enum class Changes : uint8_t {
  Plan,      ///< which plan is made: a resumed run that asks for another one plans anew
  Learning,  ///< what is learned: a resumed run is warned
  Both,
  Run,  ///< this run alone
};

/// What is known when a run begins, for Row::idle.
struct RunFacts {
  const TrainRequest& request;
  const plan::Plan& plan;
  bool in_job = false;
};

struct Row {
  std::string_view name = {};     ///< "--lr"
  std::string_view keyword = {};  ///< Python's; empty: it has none
  Section section = Section::Model;
  Changes changes = Changes::Run;
  Slot (*slot)(TrainRequest& request) = nullptr;
  std::string help = {};
  /// Whole numbers outside of these are refused.
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
  std::vector<std::string_view> excludes = {};  ///< options that it does not go with
  std::string_view needs = {};                  ///< an option without which it says nothing
  /// Why the option has no effect on this run; empty: it has one.
  std::string (*idle)(const RunFacts& facts) = nullptr;
  /// What checkpoints keep of it; nothing: it does not count with the other options. Null: its
  /// text.
  std::optional<std::string> (*kept)(const TrainRequest& request) = nullptr;
  std::string_view not_in_python = {};  ///< why it has no keyword
  bool is_required = false;
};

/// In the order in which the help shows them.
std::span<const Row> train_rows();
/// Null when there is none.
const Row* find_row(std::string_view name);

/// Whether the option stands alone, without a value behind it.
bool is_flag(const Row& row);
/// The value as one would write it behind the option; empty: not chosen. Flags: "yes" or "no".
std::string text_of(const Row& row, const TrainRequest& request);

/// The options that a plan is made for, as on a command line: those that change it and are not what
/// they usually are. The same text: the same plan, as far as the network allows.
std::string plan_request(const TrainRequest& request);

/// What checkpoints keep of the options that change what is learned, by name. Plan, data and loss
/// of `request` are those that are trained with.
std::map<std::string, std::string> kept_options(const TrainRequest& request);

/// docs/options.md: the table for people.
std::string options_page();

/// "warning: --x has no effect: why" for each of these options that has none.
std::string idle_options(const RunFacts& facts, std::span<const std::string_view> given);

}  // namespace penstock::options
