#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "penstock/schedule/formats/action_parser.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/schedule/formats/text_lines.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::schedule {
namespace {

constexpr std::string_view kMagic = "# penstock schedule";
constexpr std::string_view kKeys[] = {
    "kind",      "replicas", "hosts", "micro-batches", "accumulate", "weights", "slack",
    "recompute", "offload",  "norm",  "lowered",       "compensate", "teams"};

bool is_like_key(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '-' || c == '_';
  });
}

/// The "key: value" pairs of the comment lines at the top, as text with their places.
class Header {
 public:
  explicit Header(std::string_view place) : place_(place) {}

  /// `line` without its '#'. Lines whose first word is no "key:" are comments. An unknown key is
  /// refused: a misspelt one must not change the schedule's meaning unseen.
  void add_line(std::string_view line, int64_t number) {
    const TextPlace here{place_, number};
    std::string key;
    bool begun = false;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      if (word.ends_with(':')) {
        key = word.substr(0, word.size() - 1);
        if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
          if (!begun && !is_like_key(key)) return;
          here.fail(fmt::format("unknown key {}, expected {}{}", in_quotes(key),
                                fmt::join(kKeys, ", "),
                                begun ? "" : "; a comment has no colon after its first word"));
        }
        if (!values_.emplace(key, Value{{}, number}).second)
          here.fail(fmt::format("{} is given twice", key));
        begun = true;
      } else if (!begun) {
        return;
      } else {
        values_.at(key).words.push_back(word);
      }
    }
  }

  std::string_view word(std::string_view key) const {
    const Value& value = find(key);
    if (value.words.size() != 1)
      at(value).fail(fmt::format("{}: expected one word, found {}", key, value.words.size()));
    return value.words[0];
  }
  int64_t count(std::string_view key) const { return number(key, find(key), word(key)); }
  /// Numbers that count workers or stages.
  std::vector<int> counts(std::string_view key) const {
    const Value& value = find(key);
    std::vector<int> counts;
    counts.reserve(value.words.size());
    for (const std::string_view word : value.words) {
      const int64_t count = number(key, value, word);
      if (count > kMaxWorkers)
        at(value).fail(
            fmt::format("{}: at most {} workers are supported, found {}", key, kMaxWorkers, count));
      counts.push_back(static_cast<int>(count));
    }
    return counts;
  }
  bool yes(std::string_view key) const {
    const std::string_view answer = word(key);
    if (answer != "yes" && answer != "no")
      place_of(key).fail(fmt::format("{}: expected yes or no, found {}", key, in_quotes(answer)));
    return answer == "yes";
  }
  bool has(std::string_view key) const { return values_.count(std::string(key)) > 0; }
  TextPlace place_of(std::string_view key) const { return at(find(key)); }

 private:
  struct Value {
    std::vector<std::string_view> words;
    int64_t line = 0;
  };

  static std::string_view next_word(std::string_view& line) {
    line = trimmed(line);
    const size_t end = std::min(line.find_first_of(" \t"), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(end);
    return word;
  }
  const Value& find(std::string_view key) const {
    const auto found = values_.find(std::string(key));
    if (found == values_.end())
      TextPlace{place_, 1}.fail(fmt::format("the header has no '{}:'", key));
    return found->second;
  }
  TextPlace at(const Value& value) const { return {place_, value.line}; }
  int64_t number(std::string_view key, const Value& value, std::string_view word) const {
    const std::optional<int64_t> count = parse_count(word);
    if (!count)
      at(value).fail(
          fmt::format("{}: expected a whole number of at least 0, found {}", key, in_quotes(word)));
    return *count;
  }

  std::string_view place_;
  std::map<std::string, Value> values_;
};

std::string read_kind(const Header& header) {
  if (!header.has("kind")) return "custom";
  const std::string_view kind = header.word("kind");
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (kind.size() > 64 || !std::all_of(kind.begin(), kind.end(), allowed)) {
    header.place_of("kind").fail(fmt::format(
        "kind: expected lower-case letters, digits, - and _, found {}", in_quotes(kind)));
  }
  return std::string(kind);
}

/// The stages that a line of the header lists.
std::vector<bool> read_stages(const Header& header, std::string_view key, int num_stages) {
  std::vector<bool> stages;
  for (const int stage : header.counts(key)) {
    stages.resize(static_cast<size_t>(num_stages));
    if (stage >= num_stages)
      header.place_of(key).fail(
          fmt::format("{}: there is no stage {}, only {}", key, stage, num_stages));
    if (stages[static_cast<size_t>(stage)])
      header.place_of(key).fail(fmt::format("{}: stage {} is given twice", key, stage));
    stages[static_cast<size_t>(stage)] = true;
  }
  return stages;
}

ScheduleShape read_shape(const Header& header) {
  ScheduleShape shape{.replicas = header.counts("replicas"),
                      .micro_batches = header.count("micro-batches"),
                      .accumulate = header.count("accumulate")};
  if (header.has("hosts")) {
    shape.worker_of_replica = header.counts("hosts");
    if (shape.worker_of_replica.empty())
      header.place_of("hosts").fail("hosts: expected the worker of each replica, found nothing");
  }
  if (header.has("teams")) {
    shape.teams = header.counts("teams");
    if (shape.teams.empty())
      header.place_of("teams").fail(
          "teams: expected the number of members of each team, found nothing");
  }
  if (header.has("slack")) shape.slack = header.count("slack");
  if (header.has("recompute"))
    shape.recompute = read_stages(header, "recompute", shape.num_stages());
  if (header.has("offload")) shape.offload = read_stages(header, "offload", shape.num_stages());
  if (header.has("norm")) shape.global_norm = header.yes("norm");
  const std::string_view policy = header.word("weights");
  try {
    shape.policy = plan::parse_weight_policy(policy);
    if (header.has("compensate"))
      shape.compensation = plan::parse_compensation(header.word("compensate"));
    validate(shape);
  } catch (const ConfigError& error) {
    header.place_of(shape.worker_of_replica.empty() ? "replicas" : "hosts").fail(error.what());
  }
  return shape;
}

bool read_lowered(const Header& header, const std::vector<std::vector<Action>>& workers) {
  if (header.has("lowered")) return header.yes("lowered");
  const auto is_full = [](const Action& a) {
    return !is_compute(a.op) || a.op == Op::Recompute || a.version.value >= 0;
  };
  return std::any_of(workers.begin(), workers.end(), [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), is_full);
  });
}

Schedule parse_with_header(std::string_view text, std::string_view place) {
  TextLines lines(text);
  lines.next();
  const std::string_view version = trimmed(lines.line().substr(kMagic.size()));
  if (version != "1")
    TextPlace{place, lines.number()}.fail(
        fmt::format("expected version 1 of the schedule format, found {}", in_quotes(version)));

  Header header(place);
  Schedule schedule;
  int64_t budget = kMaxActions;
  while (lines.next()) {
    if (lines.line().starts_with('#')) {
      if (schedule.workers.empty()) header.add_line(lines.line().substr(1), lines.number());
      continue;
    }
    if (schedule.workers.size() >= static_cast<size_t>(kMaxWorkers))
      throw ParseError(place, lines.number(), fmt::format("more than {} workers", kMaxWorkers));
    schedule.workers.push_back(parse_actions(lines.line(), {place, lines.number()}, budget));
    budget -= static_cast<int64_t>(schedule.workers.back().size());
  }

  schedule.kind = read_kind(header);
  schedule.shape = read_shape(header);
  schedule.lowered = read_lowered(header, schedule.workers);
  const auto num_workers = static_cast<size_t>(schedule.shape.num_workers());
  while (schedule.workers.size() > num_workers && schedule.workers.back().empty())
    schedule.workers.pop_back();
  for (auto& list : schedule.workers) {
    for (Action& action : list) {
      if (has_micro_batch(action.op))
        action.mini_batch = schedule.shape.mini_batch_of(action.micro_batch);
    }
  }
  return schedule;
}

}  // namespace

Schedule parse_schedule(std::string_view text, std::string_view place,
                        std::vector<std::string>* notes) {
  if (trimmed(text.substr(0, text.find('\n'))).starts_with(kMagic))
    return parse_with_header(text, place);
  ParsedCsv parsed = parse_pytorch_csv(text, place);
  if (notes) *notes = std::move(parsed.notes);
  return std::move(parsed.schedule);
}

}  // namespace penstock::schedule
