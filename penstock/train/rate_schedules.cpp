#include "penstock/train/rate_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>

#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::train {
namespace {

using Form = RateKey::Form;
constexpr double kRuns = std::numeric_limits<double>::quiet_NaN();
/// Where the schedules with a momentum have what is said of it.
constexpr size_t kCycles = 6;
constexpr size_t kLeast = 7;
constexpr size_t kMost = 8;
/// In the order of CyclesMomentum.
constexpr std::string_view kCyclesWords = "auto|yes|no";

double as_number(int64_t step) { return static_cast<double>(step); }
double or_else(double value, double other) { return std::isnan(value) ? other : value; }

/// From `high` at 0 to `low` at 1.
double half_cosine(double high, double low, double progress) {
  return low + (high - low) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double step_rate(const RatePart& part, const RateMoment& at) {
  return at.base *
         std::pow(part.values[1], as_number(at.step / static_cast<int64_t>(part.values[0])));
}

double multi_step_rate(const RatePart& part, const RateMoment& at) {
  const auto passed = std::count_if(part.milestones.begin(), part.milestones.end(),
                                    [&](int64_t milestone) { return milestone <= at.step; });
  return at.base * std::pow(part.values[1], as_number(passed));
}

double constant_rate(const RatePart& part, const RateMoment& at) {
  return as_number(at.step) < part.values[1] ? at.base * part.values[0] : at.base;
}

double linear_rate(const RatePart& part, const RateMoment& at) {
  const double start = part.values[0];
  const double end = part.values[1];
  const double length = part.values[2];
  return at.base * (start + (end - start) * std::min(length, as_number(at.step)) / length);
}

double exponential_rate(const RatePart& part, const RateMoment& at) {
  return at.base * std::pow(part.values[0], as_number(at.step));
}

double polynomial_rate(const RatePart& part, const RateMoment& at) {
  const double length = part.values[0];
  return at.base * std::pow(1 - std::min(length, as_number(at.step)) / length, part.values[1]);
}

double cosine_rate(const RatePart& part, const RateMoment& at) {
  const double length = or_else(part.values[0], as_number(std::max<int64_t>(at.total_steps, 1)));
  return half_cosine(at.base, part.values[1], as_number(at.step) / length);
}

double restarts_rate(const RatePart& part, const RateMoment& at) {
  double length = part.values[0];
  const double growth = part.values[1];
  double step = as_number(at.step);
  if (growth == 1) step = std::fmod(step, length);
  while (step >= length) {
    step -= length;
    length *= growth;
  }
  return half_cosine(at.base, part.values[2], step / length);
}

/// How far a triangle of CyclicLR has risen: 0 at its feet; times what its mode makes of it.
double cyclic_height(const RatePart& part, const RateMoment& at) {
  const double up = part.values[2];
  const double length = up + or_else(part.values[3], up);
  const double rising = up / length;
  const double step = as_number(at.step);
  const double cycle = std::floor(1 + step / length);
  const double place = 1 + step / length - cycle;
  const double height = place <= rising ? place / rising : (place - 1) / (rising - 1);
  constexpr double kHalved = 1;
  constexpr double kDecaying = 2;
  double scale = 1;
  if (part.values[4] == kHalved) scale = 1 / std::pow(2.0, cycle - 1);
  if (part.values[4] == kDecaying) scale = std::pow(part.values[5], step);
  return height * scale;
}

double cyclic_rate(const RatePart& part, const RateMoment& at) {
  const double low = or_else(part.values[0], at.base);
  return low + (part.values[1] - low) * cyclic_height(part, at);
}

double cyclic_momentum(const RatePart& part, const RateMoment& at) {
  return part.values[kMost] - (part.values[kMost] - part.values[kLeast]) * cyclic_height(part, at);
}

/// The value of the step of a OneCycleLR that goes from `first` to `top`, and to `last` in the end;
/// in three phases back to `first` before.
double one_cycle(const RatePart& part, const RateMoment& at, double first, double top,
                 double last) {
  const double total = or_else(part.values[0], as_number(std::max<int64_t>(at.total_steps, 1)));
  const double share = part.values[1];
  struct Leg {
    double end;
    double from;
    double to;
  };
  std::vector<Leg> legs = {{share * total - 1, first, top}};
  if (part.values[5] != 0) legs.push_back({2 * share * total - 2, top, first});
  legs.push_back({total - 1, legs.back().to, last});
  const double step = std::min(as_number(at.step), total - 1);
  double begin = 0;
  size_t leg = 0;
  for (; leg + 1 < legs.size() && step > legs[leg].end; ++leg) begin = legs[leg].end;
  const auto& [end, from, to] = legs[leg];
  const double progress = end == begin ? 1 : (step - begin) / (end - begin);
  return part.values[2] == 0 ? half_cosine(from, to, progress) : (to - from) * progress + from;
}

double one_cycle_rate(const RatePart& part, const RateMoment& at) {
  const double first = at.base / part.values[3];
  return one_cycle(part, at, first, at.base, first / part.values[4]);
}

double one_cycle_momentum(const RatePart& part, const RateMoment& at) {
  return one_cycle(part, at, part.values[kMost], part.values[kLeast], part.values[kMost]);
}

/// What evaluations make of it is not a matter of the step (plateau.h).
double plateau_rate(const RatePart&, const RateMoment& at) { return at.base; }

constexpr RateKey number(std::string_view name, double usual, double lowest = 0,
                         double highest = 1e18) {
  return {.name = name, .usual = usual, .lowest = lowest, .highest = highest};
}
constexpr RateKey whole(std::string_view name, double usual, double lowest = 1) {
  return {.name = name, .usual = usual, .lowest = lowest, .form = Form::Whole};
}
constexpr RateKey needed(RateKey key) {
  key.is_needed = true;
  return key;
}
constexpr RateKey word(std::string_view name, std::string_view words) {
  return {.name = name, .form = Form::Word, .words = words};
}

constexpr double kSmallest = 1e-300;
constexpr double kBelowOne = 1 - 1e-12;

const std::vector<RateRow>& rate_rows() {
  static const std::vector<RateRow> kRows = {
      {"StepLR", {needed(whole("step_size", 0)), number("gamma", 0.1)}, step_rate},
      {"MultiStepLR",
       {needed({.name = "milestones", .form = Form::Steps}), number("gamma", 0.1)},
       multi_step_rate},
      {"ConstantLR", {number("factor", 1.0 / 3, 0, 1), whole("total_iters", 5, 0)}, constant_rate},
      {"LinearLR",
       {number("start_factor", 1.0 / 3, kSmallest, 1), number("end_factor", 1, 0, 1),
        whole("total_iters", 5)},
       linear_rate},
      {"ExponentialLR", {needed(number("gamma", 0))}, exponential_rate},
      {"PolynomialLR", {whole("total_iters", 5), number("power", 1)}, polynomial_rate},
      {"CosineAnnealingLR", {whole("T_max", kRuns), number("eta_min", 0)}, cosine_rate},
      {"CosineAnnealingWarmRestarts",
       {needed(whole("T_0", 0)), whole("T_mult", 1), number("eta_min", 0)},
       restarts_rate},
      {"CyclicLR",
       {number("base_lr", kRuns), needed(number("max_lr", 0)), whole("step_size_up", 2000),
        whole("step_size_down", kRuns), word("mode", "triangular|triangular2|exp_range"),
        number("gamma", 1), word("cycle_momentum", kCyclesWords),
        number("base_momentum", 0.8, 0, kBelowOne), number("max_momentum", 0.9, 0, kBelowOne)},
       cyclic_rate,
       /*is_factor=*/false,
       cyclic_momentum},
      {"OneCycleLR",
       {whole("total_steps", kRuns), number("pct_start", 0.3, 0, 1),
        word("anneal_strategy", "cos|linear"), number("div_factor", 25, kSmallest),
        number("final_div_factor", 1e4, kSmallest), word("three_phase", "no|yes"),
        word("cycle_momentum", kCyclesWords), number("base_momentum", 0.85, 0, kBelowOne),
        number("max_momentum", 0.95, 0, kBelowOne)},
       one_cycle_rate,
       /*is_factor=*/true,
       one_cycle_momentum},
      {kPlateauName,
       {word("mode", "metric|min|max"), number("factor", 0.1, 0, kBelowOne),
        whole("patience", 10, 0), number("threshold", 1e-4), word("threshold_mode", "rel|abs"),
        whole("cooldown", 0, 0), number("min_lr", 0), number("eps", 1e-8)},
       plateau_rate,
       /*is_factor=*/false}};
  return kRows;
}

[[noreturn]] void refuse_rate(const std::string& why) {
  throw ConfigError("learning-rate schedule: " + why);
}

std::vector<std::string_view> pieces_of(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  pieces.push_back(text);
  return pieces;
}

template <class Value>
bool reads(std::string_view text, Value& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<int64_t> steps_of(std::string_view text, std::string_view item) {
  std::vector<int64_t> steps;
  for (const std::string_view piece : pieces_of(text, ':')) {
    int64_t step = 0;
    if (!reads(piece, step) || step < 0 || (!steps.empty() && step < steps.back())) {
      refuse_rate(
          fmt::format("expected ascending steps such as 30:80, found '{}'", printable(item)));
    }
    steps.push_back(step);
  }
  return steps;
}

double value_of_key(const RateKey& key, std::string_view text, std::string_view item) {
  if (key.form == Form::Word) {
    const std::vector<std::string_view> words = pieces_of(key.words, '|');
    const auto found = std::find(words.begin(), words.end(), text);
    if (found != words.end()) return as_number(found - words.begin());
    refuse_rate(fmt::format("expected {} of {}, found '{}'", key.name, key.words, printable(item)));
  }
  double value = 0;
  const bool is_number = reads(text, value) && value >= key.lowest && value <= key.highest;
  if (is_number && (key.form != Form::Whole || value == std::floor(value))) return value;
  refuse_rate(fmt::format("expected {} from {} to {}{}, found '{}'", key.name, key.lowest,
                          key.highest, key.form == Form::Whole ? ", a whole number" : "",
                          printable(item)));
}

void set_key(RatePart& part, std::string_view item, std::vector<bool>& given) {
  const std::string_view name = item.substr(0, item.find('='));
  const std::vector<RateKey>& keys = part.row->keys;
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const RateKey& one) { return one.name == name; });
  if (key == keys.end() || name.size() == item.size()) {
    std::string names;
    for (const RateKey& one : keys)
      names += fmt::format("{}{}=", names.empty() ? "" : ", ", one.name);
    refuse_rate(fmt::format("{} takes {}; found '{}'", part.row->name, names, printable(item)));
  }
  const auto place = static_cast<size_t>(key - keys.begin());
  const std::string_view value = item.substr(name.size() + 1);
  if (key->form == Form::Steps)
    part.milestones = steps_of(value, item);
  else
    part.values[place] = value_of_key(*key, value, item);
  given[place] = true;
}

RatePart parse_part(std::string_view text) {
  const std::vector<std::string_view> items = pieces_of(text, ',');
  RatePart part;
  for (const RateRow& row : rate_rows()) {
    if (row.name == items.front()) part.row = &row;
  }
  if (part.row == nullptr) {
    refuse_rate(fmt::format("expected constant, step, cosine, linear, {}, found '{}'",
                            rate_schedule_names(), printable(items.front())));
  }
  const std::vector<RateKey>& keys = part.row->keys;
  std::vector<bool> given(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) part.values[i] = keys[i].usual;
  for (size_t i = 1; i < items.size(); ++i) set_key(part, items[i], given);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].is_needed && !given[i])
      refuse_rate(fmt::format("{} needs {}=", part.row->name, keys[i].name));
  }
  return part;
}

/// The phase of the moment, whose steps are then those of the phase.
const RatePhase* phase_at(const RateSchedule& schedule, RateMoment& moment) {
  PENSTOCK_CHECK(!schedule.empty() && moment.step >= 0, moment.step);
  const RatePhase* phase = &schedule.front();
  for (const RatePhase& later : schedule) {
    if (later.from <= moment.step) phase = &later;
  }
  moment.step -= phase->from;
  moment.total_steps -= phase->from;
  return phase;
}

/// A rate that is not a factor has no product with others; nor has one with a floor.
void check_product(const RatePhase& phase) {
  if (phase.parts.size() < 2) return;
  for (const RatePart& part : phase.parts) {
    const std::vector<RateKey>& keys = part.row->keys;
    bool is_factor = part.row->is_factor;
    for (size_t i = 0; i < keys.size(); ++i)
      is_factor = is_factor && !(keys[i].name == "eta_min" && part.values[i] != 0);
    if (is_factor) continue;
    refuse_rate(fmt::format("{} has rates of its own, which are no factor of another schedule's",
                            part.row->name));
  }
}

}  // namespace

std::string rate_schedule_names() {
  std::string names;
  const std::vector<RateRow>& rows = rate_rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) names += i + 1 < rows.size() ? ", " : " or ";
    names += rows[i].name;
  }
  return names;
}

RateSchedule parse_rate_schedule(const std::string& text) {
  RateSchedule schedule;
  for (std::string_view piece : pieces_of(text, '@')) {
    RatePhase phase;
    if (!schedule.empty()) {
      const std::string_view from = piece.substr(0, piece.find(':'));
      if (!reads(from, phase.from) || phase.from <= schedule.back().from ||
          from.size() == piece.size()) {
        refuse_rate(fmt::format("expected a step behind '@' that is after {}, and ':', found '@{}'",
                                schedule.back().from, printable(piece)));
      }
      piece.remove_prefix(from.size() + 1);
    }
    for (const std::string_view part : pieces_of(piece, '*'))
      phase.parts.push_back(parse_part(part));
    check_product(phase);
    schedule.push_back(std::move(phase));
  }
  const bool has_plateau = std::any_of(schedule.begin(), schedule.end(), [](const RatePhase& one) {
    return one.parts.front().row->name == kPlateauName;
  });
  if (has_plateau && schedule.size() > 1)
    refuse_rate(
        fmt::format("{} is a whole schedule: it has no steps before or after it", kPlateauName));
  return schedule;
}

CyclesMomentum cycles_momentum(const RateSchedule& schedule) {
  CyclesMomentum found = CyclesMomentum::Never;
  for (const RatePhase& phase : schedule) {
    for (const RatePart& part : phase.parts) {
      if (part.row->momentum == nullptr) continue;
      const auto own = static_cast<CyclesMomentum>(part.values[kCycles]);
      if (own == CyclesMomentum::Always) return own;
      if (own == CyclesMomentum::WhereItHasOne) found = own;
    }
  }
  return found;
}

std::optional<double> momentum_of(const RateSchedule& schedule, const RateMoment& moment) {
  RateMoment own = moment;
  for (const RatePart& part : phase_at(schedule, own)->parts) {
    if (part.row->momentum == nullptr) continue;
    const auto cycles = static_cast<CyclesMomentum>(part.values[kCycles]);
    if (cycles != CyclesMomentum::Never) return part.row->momentum(part, own);
  }
  return std::nullopt;
}

double rate_of(const RateSchedule& schedule, const RateMoment& moment) {
  RateMoment own = moment;
  const RatePhase* const phase = phase_at(schedule, own);
  if (phase->parts.size() == 1) return phase->parts[0].row->rate(phase->parts[0], own);
  double rate = own.base;
  own.base = 1;
  for (const RatePart& part : phase->parts) rate *= part.row->rate(part, own);
  return rate;
}

}  // namespace penstock::train
