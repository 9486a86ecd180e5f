// The options of the commands as rows, one table for each kind of request. From a row come: the
// option on the command line with its help, the keyword in Python, what a resumed run must plan
// anew for or be warned of, the warning that an option has no effect, and its line in
// docs/options.md.
//
//   for (const Row& row : train_rows()) fmt::print("{} {}\n", row.name, row.help);
//
// To add an option: a member of the request, a row, and the code that uses the value
// (docs/extending.md).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/options/profile_request.h"
#include "penstock/options/request.h"
#include "penstock/options/search_request.h"
#include "penstock/options/stream_request.h"
#include "penstock/plan/plan.h"

namespace penstock::options {

/// A member whose values have names. Empty text: not chosen.
struct Named {
  std::function<void(const std::string& name)> set;  ///< throws ConfigError for names of none
  std::function<std::string()> text;
  bool stands_alone = false;  ///< also without a name, which is empty then
  /// A name of no value is a mistake of usage: the message shows the way to the help.
  bool hints_at_help = false;
};
/// A flag that switches off what is usual.
struct Off {
  bool* value;
};
/// Where the value of a row lies in a request.
using Slot = std::variant<bool*, Off, int*, int64_t*, uint64_t*, double*, std::string*,
                          std::optional<int64_t>*, std::optional<double>*,
                          std::optional<std::string>*, Named>;

enum class Section : uint8_t {
  Source,
  Model,
  Data,
  Loss,
  Plan,
  Learning,
  Run,
  Output,
  Operation,
  File
};
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
  int64_t training_samples = 0;  ///< of an epoch; 0: not known, here and below
  int64_t steps = 0;             ///< of the whole run
};

/// For a default: GCC 12 breaks off at `= {}` of a list in a template.
inline std::vector<std::string_view> no_options() { return {}; }

/// An option of the command whose request this is.
template <class Request>
struct RowOf {
  std::string_view name = {};     ///< "--lr"
  std::string_view letter = {};   ///< "-o", the same option; empty: it has none
  std::string_view keyword = {};  ///< Python's; empty: it has none
  Section section = Section::Model;
  Changes changes = Changes::Run;
  Slot (*slot)(Request& request) = nullptr;
  std::string help = {};
  /// Numbers outside of these are refused.
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool may_be_infinite = false;  ///< a real number for which inf means something
  /// What the help shows as the usual value; null: the value, unless it is 0 or not chosen.
  std::string (*usual)() = nullptr;
  std::vector<std::string_view> excludes = no_options();  ///< that it does not go with
  std::string_view needs = {};  ///< an option without which it says nothing
  /// Why the option has no effect on this run; empty: it has one.
  std::string (*idle)(const RunFacts& facts) = nullptr;
  /// What checkpoints keep of it; nothing: it does not count with the other options. Null: its
  /// text.
  std::optional<std::string> (*kept)(const Request& request) = nullptr;
  std::string_view not_in_python = {};  ///< why it has no keyword
  bool is_required = false;
  /// Whether this value names a file or a folder, which in a run file lies relative to it. Null: no
  /// value does.
  bool (*is_path)(std::string_view value) = nullptr;
};

/// All of a command, in the order in which the help shows them: of `penstock train`, `stream` and
/// `profile`, and those of `plan` that choose among plans.
template <class Request>
std::span<const RowOf<Request>> rows_of();
template <>
std::span<const RowOf<TrainRequest>> rows_of();
template <>
std::span<const RowOf<StreamRequest>> rows_of();
template <>
std::span<const RowOf<ProfileRequest>> rows_of();
template <>
std::span<const RowOf<SearchRequest>> rows_of();

/// Sets the value as one would write it behind the option. Throws ConfigError for what is no such
/// value. Flags: "yes" or "no".
void set_text(const Slot& slot, const std::string& text);
/// Whether the option stands alone, without a value behind it.
bool is_flag(const Slot& slot);
/// The value as one would write it behind the option; empty: not chosen. Flags: "yes" or "no".
std::string text_of(const Slot& slot);

template <class Request>
bool is_flag(const RowOf<Request>& row) {
  Request request;
  return is_flag(row.slot(request));
}
template <class Request>
std::string text_of(const RowOf<Request>& row, const Request& request) {
  Request copy = request;
  return text_of(row.slot(copy));
}
/// What the help shows as the usual value; empty: nothing.
template <class Request>
std::string usual_text(const RowOf<Request>& row) {
  if (is_flag(row)) return "";
  if (row.usual != nullptr) return row.usual();
  Request request;
  const std::string usual = text_of(row.slot(request));
  return usual == "0" ? "" : usual;
}

/// The values of --precision, for commands that take it without a row, too.
inline constexpr std::string_view kPrecisionHelp =
    "float32, tf32 (GPUs), bfloat16 or float16. 16 bits halve activations, messages between "
    "stages and versions of the weights; the trained weights stay float32";

using Row = RowOf<TrainRequest>;
inline std::span<const Row> train_rows() { return rows_of<TrainRequest>(); }
/// Of a training; null when there is none.
const Row* find_row(std::string_view name);

/// The options that a plan is made for, as on a command line: those that change it and are not what
/// they usually are. The same text: the same plan, as far as the network allows.
std::string plan_request(const TrainRequest& request);

/// What checkpoints keep of the options that change what is learned, by name. Plan, data and loss
/// of `request` are those that are trained with.
std::map<std::string, std::string> kept_options(const TrainRequest& request);

/// docs/options.md: the tables for people.
std::string options_page();

/// "warning: --x has no effect: why" for each of these options that has none.
std::string idle_options(const RunFacts& facts, std::span<const std::string_view> given);

}  // namespace penstock::options
