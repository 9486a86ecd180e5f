#include "penstock/imported/target_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "penstock/imported/cross_entropy_step.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

namespace {

using exported::ScalarType;
using exported::TensorArgument;

class TargetCounter {
 public:
  TargetCounter(FlatProgram& program, std::vector<StepFacts>& facts, Reasons& reasons)
      : program_(program), facts_(facts), reasons_(reasons) {
    result_.values.insert(name_);
  }

  TargetNumber run() {
    find_readers();
    const ScalarType type = program_.tensors.at(name_).type;
    if (type != ScalarType::Long && type != ScalarType::Int && type != ScalarType::Float &&
        type != ScalarType::Double) {
      refuse(fmt::format("found {}, expected int64 or float32", exported::to_string(type)));
    } else if (is_read_ && find_sum() && is_read_late()) {
      add_steps();
    }
    return std::move(result_);
  }

 private:
  bool is_value(const std::string& name) const { return result_.values.contains(name); }

  bool reads_it(const StepFacts& facts) const {
    return std::any_of(facts.reads.begin(), facts.reads.end(),
                       [&](const std::string& name) { return is_value(name); });
  }

  void find_readers() {
    for (const StepFacts& facts : facts_) {
      const bool reads = reads_it(facts);
      const bool follows = reads && std::all_of(facts.reads.begin(), facts.reads.end(),
                                                [&](const auto& name) { return is_value(name); });
      is_read_ = is_read_ || reads;
      follows_.push_back(follows);
      if (follows) result_.values.insert(facts.outputs.begin(), facts.outputs.end());
    }
  }

  void refuse(const std::string& why) {
    reasons_.push_back(
        fmt::format("the input '{}' is the number of targets that count, by which a cross-entropy "
                    "summed over them is divided: {}",
                    name_, why));
  }

  /// The first sum, if all of them have the same targets.
  bool find_sum() {
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const auto found = cross_entropy_of(program_.steps[s].node, program_);
      if (!found || found->reduction == CrossEntropy::Reduction::Mean) continue;
      if (result_.targets.empty()) {
        first_ = s;
        result_.targets = found->targets;
        result_.ignored = found->ignored;
      } else if (result_.targets != found->targets || result_.ignored != found->ignored) {
        refuse(fmt::format("found sums over '{}' and over '{}', expected one kind of targets",
                           printable(result_.targets), printable(found->targets)));
        return false;
      }
    }
    if (result_.targets.empty())
      refuse("found no such sum (torch.nn.functional.cross_entropy, reduction='sum')");
    return !result_.targets.empty();
  }

  /// Whether what else reads the number comes after the targets are known.
  bool is_read_late() {
    for (size_t s = 0; s < first_; ++s) {
      if (follows_[s] && !facts_[s].mutated.empty()) {
        refuse(fmt::format("{} changes it in place", place_of(program_.steps[s].node)));
        return false;
      }
      if (follows_[s] || !reads_it(facts_[s])) continue;
      refuse(fmt::format("{} reads it before that sum", place_of(program_.steps[s].node)));
      return false;
    }
    return true;
  }

  void add_steps() {
    std::vector<Step> steps;
    std::vector<StepFacts> facts;
    const auto take = [&](size_t begin, size_t end, bool follows) {
      for (size_t s = begin; s < end; ++s) {
        if (s < first_ && follows_[s] != follows) continue;
        steps.push_back(std::move(program_.steps[s]));
        facts.push_back(std::move(facts_[s]));
      }
    };
    take(0, first_, false);
    for (Step& step : counting_steps()) {
      if (auto found = facts_of(step, program_, reasons_)) {
        steps.push_back(std::move(step));
        facts.push_back(std::move(*found));
      }
    }
    take(0, first_, true);
    take(first_, follows_.size(), false);
    program_.steps = std::move(steps);
    facts_ = std::move(facts);
  }

  /// clamp_min((targets != ignored).sum(), 1) in the number's type.
  std::vector<Step> counting_steps() {
    exported::TensorMeta mask = program_.tensors[result_.targets];
    mask.type = ScalarType::Bool;
    exported::TensorMeta one;
    one.type = ScalarType::Long;
    std::vector<Step> steps;
    const auto step = [&](const std::string& target, const std::string& read,
                          std::optional<exported::NamedArgument> more, const std::string& made) {
      exported::Node node{.target = "torch.ops.aten." + target,
                          .inputs = {{.name = "self", .value = TensorArgument{read}}},
                          .outputs = {TensorArgument{made}},
                          .name = made};
      if (more) node.inputs.push_back(std::move(*more));
      steps.push_back({.node = std::move(node), .gradient = false});
    };
    const std::string counts = new_name("counts", mask);
    const std::string sum = new_name("sum", one);
    const std::string number = new_name("number", one);
    step("ne.Scalar", result_.targets, {{.name = "other", .value = result_.ignored}}, counts);
    step("sum.default", counts, {}, sum);
    step("clamp_min.default", sum, {{.name = "min", .value = int64_t{1}}}, number);
    step("to.dtype", number, {{.name = "dtype", .value = program_.tensors.at(name_).type}}, name_);
    return steps;
  }

  std::string new_name(const std::string& what, const exported::TensorMeta& meta) {
    std::string name = fmt::format("{}_{}", name_, what);
    while (!program_.tensors.emplace(name, meta).second) name += '_';
    return name;
  }

  FlatProgram& program_;
  std::vector<StepFacts>& facts_;
  Reasons& reasons_;
  const std::string name_{kTargetNumber};
  TargetNumber result_;
  std::vector<bool> follows_;  ///< by step: it reads the number, and nothing else
  bool is_read_ = false;
  size_t first_ = 0;  ///< the sum
};

}  // namespace

TargetNumber count_targets(FlatProgram& program, std::vector<StepFacts>& facts, Reasons& reasons) {
  return TargetCounter(program, facts, reasons).run();
}

}  // namespace penstock::imported
