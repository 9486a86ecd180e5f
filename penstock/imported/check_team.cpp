#include "penstock/imported/check_team.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "penstock/imported/check_team_arguments.h"
#include "penstock/imported/check_team_operators.h"
#include "penstock/imported/known_operators.h"
#include "penstock/imported/step_places.h"
#include "penstock/imported/team_lstm.h"
#include "penstock/util/error.h"

namespace penstock::imported {

using shard::Kind;
using shard::Type;

namespace {

class TeamCheck final : public StepTypes {
 public:
  explicit TeamCheck(const TeamProof& proof) : p_(proof), sizes_(proof.program) {
    find_gradients();
    for (const auto* names :
         {&p_.parts.inputs, &p_.parts.parameters, &p_.parts.buffers, &p_.parts.constants}) {
      for (const std::string& name : *names) origins_[name] = name;
    }
  }

  std::vector<std::string> run() {
    check_borders();
    check_values();
    const std::vector<Step>& own = p_.made.program.steps;
    size_t next = 0;
    for (const Step& whole : p_.program.steps) {
      while (next < own.size() && is_conversion(own[next])) convert(own[next++]);
      next = check_step(whole, next);
    }
    while (next < own.size() && is_conversion(own[next])) convert(own[next++]);
    if (next < own.size()) add(own[next], "is no step of the whole layer");
    check_outputs();
    return std::move(errors_);
  }

  // What formulas ask.
  const Type& type(const std::string& name) const override {
    static const Type equal;
    const auto found = p_.made.values.find(name);
    return found == p_.made.values.end() ? equal : found->second;
  }
  const ValueSizes& sizes(const std::string& name) const override {
    const auto origin = origins_.find(name);
    return sizes_.of(origin == origins_.end() ? name : origin->second);
  }
  bool is_shared(const std::string& name) const override {
    if (type(name).kind == Kind::Pending) return true;
    const auto origin = origins_.find(name);
    return type(name).kind == Kind::Equal &&
           (!step_has_gradient_ ||
            !with_gradient_.contains(origin == origins_.end() ? name : origin->second));
  }
  bool same_part(const Type& one, const Type& other) const override {
    return one.is_part() && other.is_part() && one.blocks == other.blocks &&
           p_.member.regions.are_joined(one.region, other.region);
  }
  bool joined(const Type& one, const Type& other) const override {
    if (!one.is_part() || !other.is_part()) return false;
    const shard::Regions& regions = p_.member.regions;
    if (regions.are_joined(one.region, other.region)) return true;
    // A unit that several members have serves all units of each, if it is one number.
    return is_copied(one) && regions.are_shared(one.region, other.region) &&
           one.blocks == std::vector<int64_t>{regions.units(one.region)};
  }

 private:
  void add(const Step& step, const std::string& what) {
    errors_.push_back(fmt::format("{}: {} {}", place_of(step.node),
                                  StepEdit(step, p_.made.program).name(), what));
  }

  /// Of the whole layer: what depends on weights and on values that are read.
  void find_gradients() {
    using exported::ScalarType;
    const auto is_fraction = [&](const std::string& name) {
      const auto found = p_.program.tensors.find(name);
      if (found == p_.program.tensors.end()) return true;
      const ScalarType number = found->second.type;
      return number != ScalarType::Long && number != ScalarType::Int &&
             number != ScalarType::Bool && number != ScalarType::Short &&
             number != ScalarType::Char && number != ScalarType::Byte;
    };
    for (const auto* names : {&p_.parts.inputs, &p_.parts.parameters}) {
      for (const std::string& name : *names) {
        if (is_fraction(name)) with_gradient_.insert(name);
      }
    }
    for (const Step& step : p_.program.steps) {
      const StepEdit edit(step, p_.program);
      const std::vector<std::string> reads = edit.reads();
      const bool any = step.gradient && edit.name() != "detach" &&
                       std::any_of(reads.begin(), reads.end(), [&](const std::string& name) {
                         return with_gradient_.contains(name);
                       });
      if (!any) continue;
      for (const std::string& name : edit.outputs()) {
        if (is_fraction(name)) with_gradient_.insert(name);
      }
      if (edit.is_in_place()) with_gradient_.insert(reads.front());
    }
  }

  bool is_as_declared(const Type& declared, const Type& found) const {
    return declared.kind == found.kind && declared.dimension == found.dimension &&
           (!declared.is_part() || same_part(declared, found));
  }

  void check_borders() {
    const auto compare = [&](const char* what, const std::vector<std::string>& names,
                             const std::vector<Type>& declared) {
      for (size_t i = 0; i < names.size(); ++i) {
        const Type& found = type(names[i]);
        // The gradient of a whole weight is summed inside.
        const bool is_summed = std::string_view(what) == "weight" &&
                               declared.at(i).kind == Kind::Pending && found.kind == Kind::Equal;
        if (is_summed || is_as_declared(declared.at(i), found)) continue;
        errors_.push_back(fmt::format("{} '{}': expected {}, found {}", what, names[i],
                                      to_string(declared[i]), to_string(found)));
      }
    };
    compare("input", p_.parts.inputs, p_.made.types.inputs);
    compare("weight", p_.parts.parameters, p_.made.types.weights);
    compare("buffer", p_.parts.buffers, p_.made.types.buffers);
    compare("output", p_.parts.outputs, p_.made.types.outputs);
  }

  /// Lengths of parts, and that their units are whole.
  void check_values() {
    for (const auto& [name, value] : p_.made.values) {
      if (!value.is_part()) continue;
      const auto meta = p_.made.program.tensors.find(name);
      if (meta == p_.made.program.tensors.end()) continue;
      const auto& sizes = meta->second.sizes;
      const int64_t units = p_.member.regions.units(value.region);
      const bool is_whole_units =
          units > 0 && std::all_of(value.blocks.begin(), value.blocks.end(),
                                   [&](int64_t block) { return block % units == 0; });
      if (is_whole_units && value.dimension < sizes.size() && sizes[value.dimension].is_number() &&
          sizes[value.dimension].value == p_.member.length(value))
        continue;
      errors_.push_back(fmt::format("'{}' has not the length of a part of {} units", name, units));
    }
  }

  void check_outputs() {
    for (const std::string& name : p_.parts.outputs) {
      const Type& found = type(name);
      if (found.kind != Kind::Equal && !found.is_part())
        errors_.push_back(fmt::format("the output '{}' is {}", name, to_string(found)));
      if (!made_.contains(name) && !origins_.contains(name))
        errors_.push_back(fmt::format("nobody makes the output '{}'", name));
    }
  }

  static bool is_conversion(const Step& step) { return step.team && is_form(step.team->kind); }

  /// Several members have the same.
  bool is_copied(const Type& type) const {
    return type.is_part() && p_.member.regions.is_copied(type.region, p_.member.team);
  }

  bool is_weight(const std::string& name) const {
    const auto& names = p_.parts.parameters;
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  /// Of a part that several members have: the sum of their gradients, or what is the member's own.
  void convert_copy(const Step& step, const std::string& read, const Type& to) {
    const Type& from = type(read);
    const auto& runs = step.team->runs;
    if (!is_copied(from)) return add(step, "takes a part that no other member has");
    if (step.team->kind == TeamStep::Kind::SumCopies) {
      if (!is_weight(read) || to != from || runs != std::vector{p_.member.copies(from)})
        add(step, "sums other gradients than those of one weight's copies");
      return;
    }
    const shard::Regions& regions = p_.member.regions;
    const bool fits = to.is_part() && to.dimension == from.dimension && from.blocks.size() == 1 &&
                      to.blocks == from.blocks && !is_copied(to) &&
                      regions.are_shared(from.region, to.region) &&
                      step.team->dimension == from.dimension && runs.size() == 1;
    if (!fits) return add(step, fmt::format("makes {} of {}", to_string(to), to_string(from)));
    const auto copy = p_.member.part(from, {}, 0).runs.front();
    const auto own = p_.member.part(to, {}, 0).runs.front();
    if (own.begin < copy.begin || own.begin + own.length > copy.begin + copy.length ||
        runs.front() != model::TensorPart::Run{own.begin - copy.begin, own.length})
      add(step, "takes another part than its own");
  }

  bool is_of_part(const TeamStep& step, const Type& part) const {
    const model::TensorPart expected = p_.member.part(part, {}, 0);
    int64_t whole = 0;
    for (const int64_t block : part.blocks) whole += block;
    return step.dimension == part.dimension && step.whole == whole && step.runs == expected.runs &&
           step.lengths == p_.member.lengths(part);
  }

  /// A value in another form, for those that read it.
  void convert(const Step& step) {
    const StepEdit edit(step, p_.made.program);
    const std::vector<std::string> reads = edit.reads();
    const std::vector<std::string> outputs = edit.outputs();
    if (reads.size() != 1 || outputs.size() != 1 || !origins_or_made(reads.front()))
      return add(step, "reads no value of the layer");
    if (!step.gradient) add(step, "hands no gradient on");
    step_has_gradient_ = true;
    const Type& from = type(reads.front());
    const Type& to = type(outputs.front());
    const auto origin = origins_.find(reads.front());
    origins_[outputs.front()] = origin == origins_.end() ? reads.front() : origin->second;
    if (is_of_copies(step.team->kind)) return convert_copy(step, reads.front(), to);
    if (is_copied(from) || (is_copied(to) && !is_shared(reads.front())))
      return add(step, "gathers what several members have, or its gradients");
    if (!converts(step.team->kind, from.kind, to.kind))
      return add(step, fmt::format("makes {} of {}", to_string(to), to_string(from)));
    const Type& part = to.is_part() ? to : from;
    if (part.is_part() && !is_of_part(*step.team, part))
      return add(step, "takes another part than its own");
    const bool joins = from.is_part() || !is_shared(reads.front());
    if (part.is_part() && part.blocks.size() > 1 && joins)
      return add(step, "has no gradient for several blocks");
  }

  static bool converts(TeamStep::Kind kind, Kind from, Kind to) {
    switch (kind) {
      case TeamStep::Kind::SumBackward:
        return from == Kind::Equal && to == Kind::Pending;
      case TeamStep::Kind::OwnPart:
        return from == Kind::Equal && to == Kind::Part;
      case TeamStep::Kind::Gather:
        return from == Kind::Part && to == Kind::Equal;
      case TeamStep::Kind::GatherSum:
        return from == Kind::Part && to == Kind::Pending;
      default:
        return false;
    }
  }

  bool origins_or_made(const std::string& name) const {
    return origins_.contains(name) || made_.contains(name);
  }

  /// Returns the place behind what does the step of the whole layer.
  size_t check_step(const Step& whole, size_t next) {
    const std::vector<Step>& own = p_.made.program.steps;
    const StepEdit expected(whole, p_.program);
    if (!expected.outputs().empty() && laid_out_.contains(expected.outputs().front())) return next;
    if (next >= own.size()) {
      add(whole, "is left out");
      return next;
    }
    const Step& step = own[next++];
    const StepEdit edit(step, p_.made.program);
    const std::vector<std::string> made = edit.outputs();
    const std::vector<std::string> wanted = expected.outputs();
    const bool is_partial = made.size() == 1 && type(made.front()).kind == Kind::Partial;
    if (!is_partial && made != wanted) {
      add(step, "makes other values than the whole layer's step");
      return next;
    }
    if (is_partial) origins_[made.front()] = wanted.front();
    for (const std::string& name : wanted) made_.insert(name);
    step_has_gradient_ = step.gradient;
    if (step.gradient != whole.gradient)
      add(step, "hands gradients on where the whole layer's step does not, or the reverse");
    check_reads(expected, edit, is_partial);
    const std::vector<std::string> reads = edit.reads();
    if (edit.is_in_place() && !reads.empty() && origin_of(reads.front()) != reads.front())
      add(step, "changes a value in another form");
    check_types(expected, edit, is_partial);
    return is_partial ? check_sum(expected, made.front(), next) : next;
  }

  std::string origin_of(const std::string& name) const {
    const auto found = origins_.find(name);
    return found == origins_.end() ? name : found->second;
  }

  /// That it reads what the whole layer's step reads, in forms of it.
  void check_reads(const StepEdit& expected, const StepEdit& edit, bool is_partial) {
    std::vector<std::string> read;
    for (const std::string& name : edit.reads()) {
      if (!origins_or_made(name))
        add(edit.step(), fmt::format("reads '{}' before it is made", name));
      if (type(name).kind == Kind::Partial) add(edit.step(), "reads a partial sum");
      if (is_copied(type(name)) && (is_partial || (is_weight(name) && edit.step().gradient)))
        add(edit.step(), fmt::format("reads '{}', which several members have: its {} not summed",
                                     name, is_partial ? "numbers are" : "gradients are"));
      read.push_back(origin_of(name));
    }
    std::vector<std::string> wanted = expected.reads();
    if (is_partial) {  // the bias is added afterwards
      const std::string bias = bias_of(expected);
      if (!bias.empty()) wanted.erase(std::find(wanted.begin(), wanted.end(), bias));
    }
    if (read != wanted) add(edit.step(), "reads other values than the whole layer's step");
  }

  static std::string bias_of(const StepEdit& step) {
    if (step.name() == "addmm") return step.need("self");
    const bool has = step.name() == "linear" || step.name().starts_with("conv");
    return has ? step.tensor("bias").value_or("") : "";
  }

  /// The step that lays partial numbers out in more dimensions, if the member does that before they
  /// are summed: the only one that reads what the whole layer's step makes, in the same rows.
  std::optional<StepEdit> layout_of(const StepEdit& expected, const std::string& partial,
                                    const StepEdit& edit) {
    const std::string rows = expected.outputs().front();
    std::vector<StepEdit> readers;
    for (const Step& step : p_.program.steps) {
      const StepEdit reader(step, p_.program);
      const std::vector<std::string> reads = reader.reads();
      if (std::find(reads.begin(), reads.end(), rows) != reads.end()) readers.push_back(reader);
    }
    const auto& outputs = p_.parts.outputs;
    if (readers.size() != 1 || std::find(outputs.begin(), outputs.end(), rows) != outputs.end() ||
        edit.reads() != std::vector{partial} || edit.outputs().size() != 1 ||
        type(edit.outputs().front()).kind != Kind::Partial || edit.step().team)
      return std::nullopt;
    const StepEdit& reader = readers.front();
    const bool is_view =
        reader.name() == "view" || reader.name() == "reshape" || reader.name() == "_unsafe_view";
    if (!is_view || reader.outputs().size() != 1 || !is_same_step(edit, reader))
      return std::nullopt;
    const ValueSizes& from = sizes(rows);
    const ValueSizes& to = sizes(reader.outputs().front());
    const std::string bias = bias_of(expected);
    const bool keeps_rows = from.rank() == 2 && to.rank() > 1 && to.fixed.back() &&
                            from.fixed.back() && from.numbers.back() == to.numbers.back();
    if (!keeps_rows || (!bias.empty() && sizes(bias).rank() != 1)) return std::nullopt;
    return reader;
  }

  /// The sum over the members, and the bias once.
  size_t check_sum(const StepEdit& expected, std::string partial, size_t next) {
    const std::vector<Step>& own = p_.made.program.steps;
    std::string output = expected.outputs().front();
    const auto take = [&](auto&& is_wanted) -> std::optional<StepEdit> {
      if (next >= own.size() || own[next].gradient != expected.step().gradient) return std::nullopt;
      StepEdit step(own[next], p_.made.program);
      if (!is_wanted(step)) return std::nullopt;
      ++next;
      return step;
    };
    const auto fail = [&](const char* what) {
      add(expected.step(), what);
      return next;
    };
    const auto apart = next < own.size() && !own[next].team
                           ? layout_of(expected, partial, StepEdit(own[next], p_.made.program))
                           : std::nullopt;
    if (apart && own[next].gradient == expected.step().gradient) {
      partial = StepEdit(own[next++], p_.made.program).outputs().front();
      output = apart->outputs().front();
      origins_[partial] = output;
      laid_out_.insert(output);
      made_.insert(output);
    }
    const auto sum = take([&](const StepEdit& s) {
      return s.step().team && s.reads() == std::vector{partial} && sums(*s.step().team, s);
    });
    if (!sum) return fail("makes partial numbers that are not summed");
    std::string made = sum->outputs().front();
    const Type summed = type(made);
    std::string bias = bias_of(expected);
    if (!bias.empty()) {
      const auto shaped = take([&](const StepEdit& s) {
        return s.name() == "reshape" && s.reads() == std::vector{bias};
      });
      if (shaped) bias = shaped->outputs().front();
      while (next < own.size() && is_conversion(own[next])) convert(own[next++]);
      const auto added = take([&](const StepEdit& s) {
        return s.reads().size() == 2 && s.reads()[0] == made && origin_of(s.reads()[1]) == bias &&
               (!summed.is_part() || is_shared(s.reads()[1])) &&
               adds_bias(expected, shaped ? &*shaped : nullptr, s, sizes(output).rank());
      });
      if (!added) return fail("has a bias that is not added to the sum as it should be");
      made = added->outputs().front();
    } else if (made != output) {
      const auto copied =
          take([&](const StepEdit& s) { return is_copy(s) && s.reads() == std::vector{made}; });
      if (copied) made = copied->outputs().front();
    }
    const bool is_same = summed.is_part() ? same_part(type(output), summed) &&
                                                type(output).dimension == summed.dimension
                                          : type(output).kind == Kind::Equal;
    if (made != output || !is_same) return fail("has a sum that nobody reads");
    return next;
  }

  /// Whether the step makes equal numbers of partial ones, or the member's part of them.
  bool sums(const TeamStep& step, const StepEdit& edit) const {
    const Type& made = type(edit.outputs().front());
    if (step.kind == TeamStep::Kind::SumForward) return made.kind == Kind::Equal;
    return step.kind == TeamStep::Kind::SumPart && made.is_part() && made.blocks.size() == 1 &&
           !is_copied(made) && is_of_part(step, made);
  }

  void check_types(const StepEdit& expected, const StepEdit& edit, bool is_partial) {
    const std::vector<std::string> reads = edit.reads();
    const std::vector<std::string> made = edit.outputs();
    const auto is_equal = [&](const std::string& name) { return type(name).kind == Kind::Equal; };
    const bool is_whole = std::all_of(reads.begin(), reads.end(), is_equal) &&
                          std::all_of(made.begin(), made.end(), is_equal);
    try {
      if (is_whole) {
        if (edit.step().team || !is_same_step(edit, expected))
          add(edit.step(), "does something else with whole values");
      } else if (is_pending(reads, made)) {
        check_pending(expected, edit);
      } else if (edit.step().team && edit.step().team->kind == TeamStep::Kind::Lstm) {
        check_lstm(expected, edit);
      } else if (edit.step().team && edit.step().team->kind != TeamStep::Kind::WholeMask) {
        check_own(expected, edit);
      } else if (!has_same_operator(expected, edit, is_partial)) {
        add(edit.step(), "is another operator than the whole layer's");
      } else if (moves_numbers(expected.name())) {
        check_places(expected, edit);
      } else {
        check_formula(expected, edit, is_partial);
      }
    } catch (const c10::Error& error) {
      add(edit.step(), error.what_without_backtrace());
    } catch (const std::exception& error) {  // places that the value has not
      add(edit.step(), error.what());
    }
  }

  /// Whether the step reads and makes no parts, and some values are pending.
  bool is_pending(const std::vector<std::string>& reads,
                  const std::vector<std::string>& made) const {
    const auto is_no_part = [&](const std::string& name) {
      return type(name).kind == Kind::Equal || type(name).kind == Kind::Pending;
    };
    return std::all_of(reads.begin(), reads.end(), is_no_part) &&
           std::all_of(made.begin(), made.end(), is_no_part);
  }

  /// A gradient that is to be summed becomes that of what was read: sums of gradients are
  /// gradients of sums.
  void check_pending(const StepEdit& expected, const StepEdit& edit) {
    for (const std::string& name : edit.reads()) {
      if (!is_shared(name)) return add(edit.step(), describe(edit));
    }
    for (const std::string& name : edit.outputs()) {
      if (!is_shared(name)) return add(edit.step(), describe(edit));
    }
    if (edit.is_in_place() || edit.step().team || !is_same_step(edit, expected))
      add(edit.step(), "does something else with pending values");
  }

  bool is_same_step(StepEdit edit, const StepEdit& expected) const {
    for (const std::string& name : edit.reads()) edit.rename(name, origin_of(name));
    const Step& one = edit.step();
    const Step& other = expected.step();
    const auto is_same = [](const exported::NamedArgument& a, const exported::NamedArgument& b) {
      return a.name == b.name && a.value == b.value;
    };
    const auto& own = one.node.inputs;
    const auto& others = other.node.inputs;
    return one.node.target == other.node.target && one.gradient == other.gradient &&
           one.ordinal == other.ordinal &&
           std::equal(own.begin(), own.end(), others.begin(), others.end(), is_same);
  }

  /// Tables and losses of parts.
  void check_own(const StepEdit& expected, const StepEdit& edit) {
    const TeamStep& step = *edit.step().team;
    const auto& inputs = edit.step().node.inputs;
    const std::string first = edit.reads().front();
    const Type& part = type(first);
    const bool is_table = step.kind == TeamStep::Kind::Embedding;
    const bool fits = part.is_part() && part.blocks.size() == 1 && !is_copied(part) &&
                      is_of_part(step, part) && edit.reads().size() == 2 &&
                      is_equal(edit.reads()[1]);
    const size_t rank = sizes(first).rank();
    const auto number = [&](size_t place) { return std::get_if<int64_t>(&inputs[place].value); };
    bool is_right = false;
    if (is_table && expected.name() == "embedding") {
      is_right = inputs.size() == 3 && part.dimension == 0 && number(2) != nullptr &&
                 *number(2) == expected.number("padding_idx").value_or(-1) &&
                 expected.flag("scale_grad_by_freq") == false &&
                 type(edit.outputs().front()).kind == Kind::Partial;
    } else if (step.kind == TeamStep::Kind::CrossEntropy &&
               expected.name() == "cross_entropy_loss") {
      is_right =
          inputs.size() == 5 && part.dimension == (rank < 2 ? 0 : 1) && number(2) != nullptr &&
          *number(2) == expected.number("reduction") && number(3) != nullptr &&
          *number(3) == expected.number("ignore_index") &&
          inputs[4].value == exported::Argument(expected.fraction("label_smoothing").value()) &&
          !expected.has("weight") && is_equal(edit.outputs().front());
    }
    if (!fits || !is_right) add(edit.step(), "does not fit the types of its values");
  }

  /// Rows of all four gates, for whole hidden units; what is made of them is gathered inside.
  void check_lstm(const StepEdit& expected, const StepEdit& edit) {
    const LstmArguments lstm(edit);
    const auto is_unread = [&](const std::string& name) {
      const auto& outputs = p_.parts.outputs;
      const auto& steps = p_.made.program.steps;
      return std::find(outputs.begin(), outputs.end(), name) == outputs.end() &&
             std::none_of(steps.begin(), steps.end(), [&](const Step& step) {
               const auto reads = StepEdit(step, p_.made.program).reads();
               return std::find(reads.begin(), reads.end(), name) != reads.end();
             });
    };
    if (lstm.weights.size() < 2 || lstm.is_packed || lstm.has_projections() ||
        sizes(lstm.input).rank() != 3)
      return add(edit.step(), "is no LSTM of hidden units");
    const std::vector<int64_t> gates(4, sizes(lstm.weights[1]).numbers.back());
    const Type& rows = type(lstm.first_weight());
    const auto has_rows = [&](const std::string& name) {
      const Type& own = type(name);
      return own.is_part() && own.dimension == 0 && own.blocks == gates && same_part(own, rows);
    };
    const auto is_constant = [&](const std::string& name) {
      return is_equal(name) && is_shared(name);
    };
    const std::vector<std::string> made = edit.outputs();
    const bool fits =
        std::all_of(lstm.weights.begin(), lstm.weights.end(), has_rows) &&
        std::all_of(lstm.states.begin(), lstm.states.end(), is_constant) &&
        std::all_of(made.begin(), made.end(),
                    [&](const std::string& name) { return name.empty() || is_equal(name); }) &&
        !type(lstm.input).is_part() && is_shared(lstm.input) && !is_copied(rows) &&
        is_of_part(*edit.step().team, rows);
    if (!fits) add(edit.step(), describe(edit));
    if (made.size() > 2 && !made[2].empty() && !is_unread(made[2]))
      add(edit.step(), "makes cells that are read, of which members have parts");
    if (!has_same_operator(expected, edit, false) ||
        edit.step().ordinal != expected.step().ordinal ||
        !has_same_arguments(expected, edit, false,
                            [&](const std::string& name) { return origin_of(name); }))
      add(edit.step(), "has other arguments than the whole layer");
  }

  bool is_equal(const std::string& name) const { return type(name).kind == Kind::Equal; }

  void check_formula(const StepEdit& expected, const StepEdit& edit, bool is_partial) {
    const auto formula = formulas().find(edit.name());
    if (formula == formulas().end()) return add(edit.step(), "has no rule for parts");
    if (!formula->second(edit, *this)) return add(edit.step(), describe(edit));
    check_mask(expected, edit);
    if (!has_same_arguments(expected, edit, is_partial,
                            [&](const std::string& name) { return origin_of(name); }))
      add(edit.step(), "has other arguments than the whole layer");
    check_groups(expected, edit, is_partial);
  }

  std::string describe(const StepEdit& edit) const {
    std::string text = "cannot make";
    for (const std::string& name : edit.outputs()) text += ' ' + to_string(type(name));
    text += " of";
    for (const std::string& name : edit.reads())
      text += fmt::format(" '{}' ({})", name, to_string(type(name)));
    return text;
  }

  /// Random masks are those of the whole value.
  void check_mask(const StepEdit& expected, const StepEdit& edit) {
    const Type& made = type(edit.outputs().front());
    const bool is_attention = is(expected.step().node.target, kAttention);
    const bool draws = is_attention ? expected.fraction("dropout_p").value_or(0) > 0
                                    : is_dropout(expected.step().node.target) ||
                                          expected.name().ends_with("dropout");
    const bool is_same =
        expected.name() == "feature_dropout" && made.is_part() && made.dimension > 1;
    const bool needs = draws && !is_same && expected.fraction("p").value_or(1) > 0;
    const bool has = edit.step().team.has_value();
    if (needs != has || (has && !is_of_part(*edit.step().team, made)))
      add(edit.step(), "draws another mask than the whole layer");
    if (edit.step().ordinal != expected.step().ordinal)
      add(edit.step(), "draws other random numbers than the whole layer");
  }

  /// A member has as many groups of channels as its part has. Where the channels are summed over
  /// the members there is one.
  void check_groups(const StepEdit& expected, const StepEdit& edit, bool is_partial) {
    for (const char* name : {"groups", "num_groups"}) {
      const auto whole = expected.number(name);
      const auto own = edit.number(name);
      if (!whole && !own) continue;
      const std::string input = edit.reads().front();
      const Type& part = type(input);
      const bool is_divided = part.is_part() && part.dimension == 1 && !is_partial;
      const int64_t channels = is_divided ? sizes(input).numbers.at(1) : 1;
      const int64_t length = is_divided ? p_.member.length(part) : 1;
      if (!whole || !own || *own * channels != *whole * length)
        add(edit.step(), "has another number of groups than its part");
    }
  }

  Symbols small_symbols() const {
    Symbols symbols = p_.parts.hints;
    const auto range = p_.parts.ranges.find(p_.parts.batch_symbol);
    if (!p_.parts.batch_symbol.empty()) {
      symbols[p_.parts.batch_symbol] =
          std::max<int64_t>(2, range == p_.parts.ranges.end() ? 2 : range->second.min.value_or(2));
    }
    return symbols;
  }

  at::Tensor part_of(const at::Tensor& whole, const Type& part) const {
    return part.is_part() ? p_.member.part(part, {}, 0).of(whole) : whole;
  }

  PartPlaces places_of_part(const Type& part, int64_t length) const {
    const Type row = Type::part(0, part.region, part.blocks);
    return {part.dimension, part_of(at::arange(length, at::kLong), row)};
  }

  /// Whether views of a value, too large to be made, are those of its part. Nothing: some are no
  /// views.
  std::optional<bool> check_views(const StepEdit& expected, const StepEdit& edit) const {
    const Symbols symbols = small_symbols();
    const std::string name = edit.reads().front();
    const std::vector<int64_t> sizes = sizes_of(expected.reads().front(), p_.program, symbols);
    const Type& read = type(name);
    PartViews views;
    views.read = places_of_part(read, sizes.at(read.dimension));
    std::vector<int64_t> own_sizes = sizes;
    own_sizes.at(read.dimension) = views.read.places.numel();
    const auto meta = at::TensorOptions(at::kByte).device(at::kMeta);
    views.whole = at::empty(sizes, meta);
    views.own = at::empty(own_sizes, meta);
    std::map<std::string, at::Tensor> whole = {{expected.reads().front(), views.whole}};
    std::map<std::string, at::Tensor> own = {{name, views.own}};
    run_step(expected, p_.program, symbols, whole);
    run_step(edit, p_.made.program, symbols, own);
    for (const std::string& output : edit.outputs()) {
      if (output.empty()) continue;
      const Type& made = type(output);
      if (!made.is_part()) return false;
      views.view_of_whole = whole.at(output);
      views.view_of_own = own.at(output);
      views.made =
          places_of_part(made, views.view_of_whole.size(static_cast<int64_t>(made.dimension)));
      const std::optional<bool> agree = views_agree(views);
      if (agree != true) return agree;
    }
    return true;
  }

  /// Dimensions that are no part's are short where their lengths do not matter.
  std::vector<int64_t> sizes_to_try(const StepEdit& expected, const std::string& name,
                                    const Type& part) const {
    std::vector<int64_t> sizes = sizes_of(name, p_.program, small_symbols());
    if (!moves_any_lengths(expected.name())) return sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!part.is_part() || d != part.dimension) sizes[d] = std::min<int64_t>(sizes[d], 3);
    }
    return sizes;
  }

  bool is_large(const std::string& name) const {
    constexpr double kNumbers = 1 << 20;
    double numbers = 1;
    for (const int64_t size : sizes_of(name, p_.program, small_symbols()))
      numbers *= static_cast<double>(size);
    return numbers > kNumbers;
  }

  /// Runs the whole layer's step and the member's on numbers that say their place.
  void check_places(const StepEdit& expected, const StepEdit& edit) {
    const Symbols symbols = small_symbols();
    std::map<std::string, at::Tensor> whole;
    std::map<std::string, at::Tensor> own;
    int64_t first = 0;
    const std::vector<std::string> reads = edit.reads();
    const std::vector<std::string> wanted = expected.reads();
    if (reads.size() != wanted.size() || reads.empty()) return;
    if (moves_any_lengths(expected.name())) {
      if (!has_same_arguments(expected, edit, false,
                              [&](const std::string& name) { return origin_of(name); }))
        add(edit.step(), "has other arguments than the whole layer");
    } else if (type(reads.front()).is_part() && reads.size() == 1 && is_large(wanted.front())) {
      if (const std::optional<bool> agree = check_views(expected, edit)) {
        if (!*agree) add(edit.step(), "takes other places than its part");
        return;
      }
    }
    for (size_t i = 0; i < reads.size(); ++i) {
      if (!type(reads[i]).is_part() && !is_shared(reads[i]))
        return add(edit.step(), describe(edit));
      if (whole.contains(wanted[i])) continue;
      const Type& part = type(reads[i]);
      const at::Tensor value =
          places_of(sizes_to_try(expected, wanted[i], part), part.is_part() ? first : -1);
      first += value.numel();
      whole[wanted[i]] = value;
      own[reads[i]] = part_of(value, part);
    }
    run_step(expected, p_.program, symbols, whole);
    run_step(edit, p_.made.program, symbols, own);
    for (const std::string& name : edit.outputs()) {
      if (name.empty()) continue;
      if (!type(name).is_part() || !at::equal(part_of(whole.at(name), type(name)), own.at(name)))
        return add(edit.step(), "takes other places than its part");
    }
  }

  const TeamProof& p_;
  mutable TeamSizes sizes_;
  std::set<std::string> with_gradient_;
  std::map<std::string, std::string> origins_;  ///< of values in other forms
  std::set<std::string> made_;
  std::set<std::string> laid_out_;  ///< what the whole layer's steps make that members sum
  bool step_has_gradient_ = true;   ///< of the one that is checked
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<std::string> check_team(const TeamProof& proof) { return TeamCheck(proof).run(); }

}  // namespace penstock::imported
