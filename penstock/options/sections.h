// What the tables share: where members lie, and the rows of several commands. A request that has
// such a row has its member, by the same name. Internal to options.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/frames/task.h"
#include "penstock/model/frozen_type.h"
#include "penstock/model/optimizer_spec.h"
#include "penstock/model/zoo_names.h"
#include "penstock/options/optimizer_text.h"
#include "penstock/options/rows.h"
#include "penstock/util/error.h"

namespace penstock::options {

/// 0: any that is free. Throws ConfigError.
inline int parse_port(const std::string& text) {
  constexpr int kLast = 65535;
  int port = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= kLast)
    return port;
  throw ConfigError(fmt::format("expected a port from 0 to 65535, found '{:.40}'", text));
}

template <auto Part>
struct WholeOf;
template <class Whole, class Value, Value Whole::*Part>
struct WholeOf<Part> {
  using type = Whole;
};

/// Where a member of a section lies: at<&TrainRequest::run, &RunRequest::epochs>.
template <auto Part, auto Member>
Slot at(typename WholeOf<Part>::type& request) {
  return &(request.*Part.*Member);
}
/// The same, of a flag that switches it off.
template <auto Part, auto Member>
Slot off(typename WholeOf<Part>::type& request) {
  return Off{&(request.*Part.*Member)};
}

/// A value with a name: `parse` throws ConfigError for names of no value, `text` names one.
template <class Value, class Parse, class Text>
Named named(Value& value, Parse parse, Text text) {
  return {[&value, parse](const std::string& name) { value = parse(name); },
          [&value, text] { return std::string(text(value)); }};
}
/// One that need not be chosen.
template <class Value, class Parse, class Text>
Named named_or_none(std::optional<Value>& value, Parse parse, Text text) {
  return {[&value, parse](const std::string& name) { value = parse(name); },
          [&value, text] { return value ? std::string(text(*value)) : std::string(); }};
}

/// A member of an enumeration whose values have these names, in their order.
template <class Value, size_t count>
Named one_of(Value& value, const std::array<std::string_view, count>& names) {
  return named(
      value,
      [&names](const std::string& name) {
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end()) {
          throw ConfigError(
              fmt::format("expected one of {}, found '{}'", fmt::join(names, ", "), name));
        }
        return static_cast<Value>(found - names.begin());
      },
      [&names](Value chosen) { return names[static_cast<size_t>(chosen)]; });
}

inline Named named_optimizer(model::OptimizerSpec& spec) {
  return {[&spec](const std::string& text) { set_optimizer(spec, text); },
          [&spec] { return optimizer_text(spec); }};
}

/// Of the row that takes one.
inline std::string optimizer_help() {
  return model::optimizer_names() +
         "; behind the name its parameters, such as adam,beta2=0.99,amsgrad";
}

inline std::string momentum_help() { return "Momentum of " + optimizers_with_momentum(); }

inline Named named_task(std::optional<frames::Task>& task) {
  return named_or_none(task, frames::parse_task,
                       [](frames::Task value) { return to_string(value); });
}

inline constexpr double kNoBound = std::numeric_limits<double>::infinity();

/// An option that is a member of a section.
template <auto Part, auto Member>
RowOf<typename WholeOf<Part>::type> row(std::string_view name, std::string help,
                                        double least = -kNoBound, double most = kNoBound) {
  return {.name = name,
          .slot = at<Part, Member>,
          .help = std::move(help),
          .least = least,
          .most = most};
}
/// One that lies elsewhere, or has names.
template <class R>
RowOf<R> row(std::string_view name, Slot (*slot)(R& request), std::string help) {
  return {.name = name, .slot = slot, .help = std::move(help)};
}

/// A row with what a training makes of it.
template <class R>
RowOf<R> with(std::string_view keyword, Changes changes, RowOf<R> row) {
  row.keyword = keyword;
  row.changes = changes;
  return row;
}
/// A row that does not go with another.
template <class R>
RowOf<R> without(std::string_view other, RowOf<R> row) {
  row.excludes.push_back(other);
  return row;
}
/// A row whose value may be 0, which the help says then.
template <class R>
RowOf<R> with_zero(RowOf<R> row) {
  row.usual = [] { return std::string("0"); };
  return row;
}

/// All values are paths, or those of data, or programs.
inline bool names_a_file(std::string_view) { return true; }
bool names_data(std::string_view value);
inline bool names_a_program(std::string_view value) { return value.ends_with(".pt2"); }
/// A row whose value is a file or a folder.
template <class R>
RowOf<R> path(RowOf<R> row, bool (*is_path)(std::string_view value) = names_a_file) {
  row.is_path = is_path;
  return row;
}

/// The rows of a section; those without a keyword in Python have this reason.
template <class R>
std::vector<RowOf<R>> in(Section section, std::string_view not_in_python,
                         std::vector<RowOf<R>> rows) {
  for (RowOf<R>& row : rows) {
    row.section = section;
    if (row.keyword.empty()) row.not_in_python = not_in_python;
  }
  return rows;
}
/// Those of a command that Python does not have, and that resumes nothing by its options.
template <class R>
std::vector<RowOf<R>> in(Section section, std::vector<RowOf<R>> rows) {
  for (RowOf<R>& row : rows) row = with({}, Changes::Run, std::move(row));
  return in<R>(section, {}, std::move(rows));
}

template <class R>
std::vector<RowOf<R>> joined(std::initializer_list<std::vector<RowOf<R>>> sections) {
  std::vector<RowOf<R>> all;
  for (const auto& section : sections) all.insert(all.end(), section.begin(), section.end());
  return all;
}

/// All but nothing.
inline constexpr double kMostDropout = 0.99;

template <class R>
std::vector<RowOf<R>> model_rows(bool is_required) {
  RowOf<R> name = row<&R::model, &ModelRequest::name>(
      "--model", fmt::format("A model exported from PyTorch (FILE.pt2; penstock import), or one "
                             "of: {}",
                             fmt::join(model::kZooNames, ", ")));
  name.is_required = is_required;
  name.is_path = names_a_program;
  return {
      std::move(name),
      row<&R::model, &ModelRequest::width>(
          "--width",
          "mlp, tied_mlp: width of the hidden layers; partime: features; gpt, awd_lm, gnmt, s2vt: "
          "numbers that stand for a place",
          1),
      row<&R::model, &ModelRequest::depth>(
          "--depth",
          "mlp, tied_mlp: hidden layers; partime: convolutions; gpt: blocks; awd_lm: LSTMs; "
          "gnmt: LSTMs of the encoder, and of the decoder",
          1),
      row<&R::model, &ModelRequest::kernel>("--kernel",
                                            "partime: side of the convolutions' kernels", 1),
      row<&R::model, &ModelRequest::heads>("--heads", "gpt: heads of attention", 1),
      row<&R::model, &ModelRequest::untied>(
          "--untied", "gpt, awd_lm: a head with weights of its own, not those of the embedding"),
      row<&R::model, &ModelRequest::embedding>("--embedding",
                                               "awd_lm, s2vt: numbers that stand for a token", 1),
      row<&R::model, &ModelRequest::dropout>(
          "--dropout",
          "gpt, gnmt: share of numbers that are left out in training; awd_lm: of the outputs, "
          "the others in proportion",
          0, kMostDropout)};
}

/// What becomes of a program: adapters where it has none, the form of frozen weights.
template <class R>
std::vector<RowOf<R>> program_rows() {
  std::vector<RowOf<R>> rows = {
      with("lora", Changes::Run,
           row<&R::model, &ModelRequest::lora>(
               "--lora",
               "Programs (FILE.pt2): train low-rank adapters of this rank (LoRA) beside the "
               "products with the weights of --lora-targets, and freeze everything else; "
               "docs/fine-tuning.md",
               1)),
      with("lora_targets", Changes::Run,
           row<&R::model, &ModelRequest::lora_targets>(
               "--lora-targets",
               "Modules that get an adapter, with commas: ends of their names (q_proj,v_proj), "
               "with * for any characters, or all-linear: all linear ones but the last, the output "
               "head")),
      with("lora_alpha", Changes::Run,
           row<&R::model, &ModelRequest::lora_alpha>(
               "--lora-alpha", "What an adapter adds is multiplied by this, divided by the rank"))};
  for (size_t i = 1; i < rows.size(); ++i) rows[i].needs = "--lora";
  const auto slot = [](R& r) -> Slot {
    return named(r.model.frozen_weights, model::parse_frozen_type,
                 [](model::FrozenType type) { return to_string(type); });
  };
  rows.push_back(with("frozen_weights", Changes::Both,
                      row<R>("--frozen-weights", slot,
                             "Programs (FILE.pt2): hold frozen weights as-stored, or those of "
                             "linear modules as int8, with a scale for each 128 numbers: about a "
                             "quarter of the memory of float32; docs/fine-tuning.md")));
  return rows;
}

/// What a model takes and makes, where its data does not say it.
template <class R>
std::vector<RowOf<R>> sample_rows() {
  return {row<&R::model, &ModelRequest::classes>("--classes",
                                                 "Number of classes, or of tokens that the model "
                                                 "knows (default: the model's own)",
                                                 1),
          row<&R::model, &ModelRequest::input>(
              "--input",
              "Shape of one sample, e.g. 3x32x32, or 128 tokens (default: the model's own)")};
}

template <class R>
std::vector<RowOf<R>> loss_rows() {
  using model::LossSpec;
  return {with("loss", Changes::Learning,
               row<&R::loss, &LossSpec::name>(
                   "--loss", fmt::format("{} (default: model where the model makes its loss "
                                         "itself, otherwise cross-entropy)",
                                         model::kLossNames))),
          with("label_smoothing", Changes::Learning,
               row<&R::loss, &LossSpec::label_smoothing>(
                   "--label-smoothing",
                   "cross-entropy: spread this share of a target over all classes")),
          with("ignore_index", Changes::Learning,
               row<&R::loss, &LossSpec::ignore_index>(
                   "--ignore-index", "cross-entropy: targets of this value count nothing"))};
}

/// `usual`: what is taken without the option, here and below.
template <class R>
RowOf<R> chunks_row(std::string_view usual) {
  return row<&R::plan, &decltype(R::plan)::chunks>(
      "--chunks",
      fmt::format("interleaved, interleaved-zb: stages per worker (default: {})", usual));
}
template <class R>
RowOf<R> slack_row(std::string_view usual) {
  return row<&R::plan, &decltype(R::plan)::slack>(
      "--slack", fmt::format("eager-1f1b: extra micro-batches in flight per later stage, compared "
                             "with 1F1B (default: {})",
                             usual));
}
template <class R>
RowOf<R> keep_row(std::string_view usual) {
  return row<&R::plan, &decltype(R::plan)::keep>(
      "--keep", fmt::format("zb-auto, zb-auto-v: micro-batches that a worker keeps at most from F "
                            "to W, summed over its stages (default: {})",
                            usual));
}
/// "auto", which is nothing, or how many members each team has.
Named named_teams(std::optional<int>& tensor);

template <class R>
RowOf<R> tensor_row() {
  return row<R>(
      "--tensor", [](R& r) -> Slot { return named_teams(r.plan.tensor); },
      "Members of the team that runs each replica of a stage, with a part of its weights each "
      "(tensor parallelism): a number, or auto: the fastest, by stage");
}
template <class R>
RowOf<R> micro_batches_row(std::string_view usual, double least) {
  return row<&R::plan, &decltype(R::plan)::micro_batches>(
      "--micro-batches", fmt::format("Micro-batches per optimiser step (default: {})", usual),
      least);
}
template <class R>
RowOf<R> strategy_row(std::string help) {
  const auto slot = [](R& r) -> Slot {
    return named(r.plan.strategy, plan::parse_strategy_choice,
                 [](std::optional<plan::Strategy> choice) { return to_string(choice); });
  };
  return row<R>("--strategy", slot, std::move(help));
}
template <class R>
RowOf<R> weights_row() {
  const auto slot = [](R& r) -> Slot {
    return named_or_none(r.plan.weights, plan::parse_weight_policy,
                         [](plan::WeightPolicy policy) { return to_string(policy); });
  };
  return row<R>("--weights", slot,
                "Weight policy: flush, stash, vertical-sync, 2bw, latest, current");
}

inline const std::string kCompensateHelp =
    "What makes up for delayed weights: none, predict, rate, correct or nesterov. predict moves "
    "weights ahead by the optimiser's next step times the delay. rate divides the learning rate by "
    "the delay at first. correct moves the weights of backward passes back, under latest. nesterov "
    "looks ahead as Nesterov's momentum does";

inline constexpr std::string_view kBoundaryHelp =
    "Numbers in which values and gradients travel between stages: float32, bfloat16, float16, "
    "int8, "
    "subspace:K (K numbers of each token) or auto. auto takes the most exact of float32, bfloat16 "
    "and int8 that is as fast, for each boundary. All but float32 change what is learned";
inline std::string boundary_name(const std::optional<plan::BoundaryCoding>& coding) {
  return coding ? to_string(*coding) : "auto";
}

inline constexpr std::string_view kSyncPrecisionHelp =
    "Numbers in which gradients travel between replicas: float32, bfloat16, float16";

template <class R>
RowOf<R> threads_row(std::string help) {
  return row<&R::run, &decltype(R::run)::threads>("--threads", std::move(help), 1, kMaxThreads);
}
template <class R>
RowOf<R> seed_row() {
  return row<&R::run, &decltype(R::run)::seed>("--seed", "Seed of all random numbers");
}
template <class R>
RowOf<R> json_row() {
  return row<&R::output, &decltype(R::output)::json>(
      "--json",
      "Print one JSON object on standard output; progress and messages go to standard error");
}

/// Of commands whose options are all rows.
template <class R>
std::vector<RowOf<R>> file_rows() {
  return in<R>(
      Section::File, "a keyword for each option is Python's own form of it",
      {path(row<&R::file, &RunFileSection::config>(
           "--config",
           "Read options from this file (TOML), each by its name without the dashes. Those of the "
           "command line win; relative paths are relative to the file; docs/operating.md")),
       row<&R::file, &RunFileSection::prints>(
           "--print-config", "Print the run file of these options instead of running")});
}

std::vector<Row> plan_rows();
std::vector<Row> learning_rows();
std::vector<Row> operation_rows();

}  // namespace penstock::options
