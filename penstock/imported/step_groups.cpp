#include "penstock/imported/step_groups.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace penstock::imported {
namespace {

bool is_fraction(exported::ScalarType type) {
  return type == exported::ScalarType::Float || exported::is_short_float(type);
}

class Grouper {
 public:
  Grouper(const FlatProgram& program, const std::vector<StepFacts>& facts, const Origins& origins,
          const AliasSets& aliases, std::string batch_symbol)
      : program_(program),
        facts_(facts),
        origins_(origins),
        aliases_(aliases),
        batch_symbol_(std::move(batch_symbol)) {}

  Grouping run() {
    const std::vector<bool> used = used_steps();
    const std::vector<bool> repeated = repeated_steps();
    for (size_t s = 0; s < facts_.size(); ++s) {
      if (!used[s]) continue;
      (repeated[s] ? result_.repeated_steps : result_.main).push_back(s);
    }
    find_illegal();
    cut();
    return std::move(result_);
  }

 private:
  /// A step is needed when its results are, or when it changes something.
  std::vector<bool> used_steps() {
    std::set<std::string> wanted;
    for (const exported::Argument& output : program_.outputs) {
      if (const auto* tensor = std::get_if<exported::TensorArgument>(&output))
        wanted.insert(tensor->name);
    }
    std::vector<bool> used(facts_.size(), false);
    for (size_t s = facts_.size(); s-- > 0;) {
      const StepFacts& facts = facts_[s];
      used[s] = !facts.mutated.empty() ||
                std::any_of(facts.outputs.begin(), facts.outputs.end(),
                            [&](const std::string& name) { return wanted.contains(name); });
      if (used[s]) wanted.insert(facts.reads.begin(), facts.reads.end());
    }
    return used;
  }

  std::vector<bool> repeated_steps() {
    std::vector<bool> repeated(facts_.size(), true);
    for (bool changed = true; changed;) {
      changed = false;
      std::set<std::string> values = origins_.constants;
      values.insert(origins_.whole.begin(), origins_.whole.end());
      std::set<std::string> spoiled;  // alias sets that a step with other inputs changes
      for (size_t s = 0; s < facts_.size(); ++s) {
        if (repeated[s]) continue;
        for (const std::string& name : facts_[s].mutated) spoiled.insert(aliases_.root(name));
      }
      for (size_t s = 0; s < facts_.size(); ++s) {
        if (!repeated[s]) continue;
        const StepFacts& facts = facts_[s];
        const auto is_spoiled = [&](const std::string& name) {
          return spoiled.contains(aliases_.root(name));
        };
        const bool good =
            !facts.is_random && !is_frozen_work(facts) &&
            std::all_of(facts.reads.begin(), facts.reads.end(),
                        [&](const std::string& name) { return values.contains(name); }) &&
            std::none_of(facts.reads.begin(), facts.reads.end(), is_spoiled) &&
            std::none_of(facts.outputs.begin(), facts.outputs.end(), is_spoiled);
        if (good) {
          values.insert(facts.outputs.begin(), facts.outputs.end());
        } else {
          repeated[s] = false;
          changed = true;
        }
      }
    }
    for (size_t s = 0; s < facts_.size(); ++s) {
      const auto varies = [&](const std::string& name) {
        return origins_.whole.contains(name) || varying_.contains(name);
      };
      if (repeated[s] && std::any_of(facts_[s].reads.begin(), facts_[s].reads.end(), varies))
        varying_.insert(facts_[s].outputs.begin(), facts_[s].outputs.end());
    }
    return repeated;
  }

  /// Whether it reads a frozen weight and makes nothing but values that may cross.
  bool is_frozen_work(const StepFacts& facts) const {
    return std::any_of(facts.reads.begin(), facts.reads.end(),
                       [&](const std::string& name) { return origins_.frozen.contains(name); }) &&
           std::all_of(facts.outputs.begin(), facts.outputs.end(),
                       [&](const std::string& name) { return may_cross(name); });
  }

  /// Whether the value may cross from one worker to another.
  bool may_cross(const std::string& name) const {
    const auto found = program_.tensors.find(name);
    if (found == program_.tensors.end()) return false;
    const exported::TensorMeta& meta = found->second;
    if (!is_fraction(meta.type) || meta.sizes.empty()) return false;
    const bool is_empty = std::any_of(
        meta.sizes.begin(), meta.sizes.end(),
        [](const exported::SymbolicInt& size) { return size.is_number() && size.value == 0; });
    if (is_empty) return false;  // a slice beyond the end, such as cat() takes
    return SizeExpression(meta.sizes.front()).multiple_of(batch_symbol_) == 1;
  }

  void forbid(size_t first, size_t last) {
    for (size_t k = first + 1; k <= last; ++k) illegal_[k] = true;
  }

  /// illegal_[k]: no boundary before main step k.
  void find_illegal() {
    const std::vector<size_t>& main = result_.main;
    illegal_.assign(main.size() + 1, false);
    std::map<std::string, size_t> first_touch;
    std::map<std::string, size_t> last_change;
    std::map<std::string, size_t> last_touch;
    for (size_t k = 0; k < main.size(); ++k) {
      const StepFacts& facts = facts_[main[k]];
      const auto touch = [&](const std::string& name) {
        const std::string& root = aliases_.root(name);
        if (!aliases_.is_changed(root)) return;
        first_touch.try_emplace(root, k);
        last_touch[root] = k;
      };
      for (const std::string& name : facts.reads) {
        touch(name);
        last_read_[name] = k;
      }
      for (const std::string& name : facts.outputs) {
        if (name.empty()) continue;
        touch(name);
        made_at_[name] = k;
      }
      for (const std::string& name : facts.mutated) last_change[aliases_.root(name)] = k;
      if (facts.is_view) illegal_[k] = true;
    }
    // What a layer changes of these is not seen by others: each gets the original.
    std::set<std::string> kept_roots;
    for (const std::string& name : origins_.buffers) kept_roots.insert(aliases_.root(name));
    for (const std::string& name : origins_.inputs) kept_roots.insert(aliases_.root(name));
    for (const auto& [root, last] : last_change) {
      const auto first = first_touch.find(root);
      const bool kept = kept_roots.contains(root);
      if (first != first_touch.end()) forbid(first->second, kept ? last_touch[root] : last);
    }
    for (const auto& [name, read] : last_read_) {
      const auto made = made_at_.find(name);
      if (made == made_at_.end() || may_cross(name)) continue;
      forbid(made->second, read);
      if (made->second < read && result_.batch_elsewhere.empty() && has_batch_elsewhere(name))
        result_.batch_elsewhere = name;
    }
  }

  bool has_batch_elsewhere(const std::string& name) const {
    const auto found = program_.tensors.find(name);
    if (found == program_.tensors.end() || !is_fraction(found->second.type)) return false;
    const auto is_batch = [&](const exported::SymbolicInt& size) {
      return SizeExpression(size).multiple_of(batch_symbol_) == 1;
    };
    const std::vector<exported::SymbolicInt>& sizes = found->second.sizes;
    return sizes.size() > 1 && !is_batch(sizes.front()) &&
           std::any_of(sizes.begin() + 1, sizes.end(), is_batch);
  }

  /// Whether the steps read a value that varies with the samples and make one that others read.
  bool stands_alone(size_t begin, size_t end) const {
    bool reads = false;
    bool makes = false;
    for (size_t k = begin; k < end; ++k) {
      const StepFacts& facts = facts_[result_.main[k]];
      for (const std::string& name : facts.reads) {
        const auto made = made_at_.find(name);
        reads = reads || origins_.inputs.contains(name) || varying_.contains(name) ||
                (made != made_at_.end() && made->second < begin);
      }
      for (const std::string& name : facts.outputs) {
        const auto read = last_read_.find(name);
        makes = makes || (read != last_read_.end() && read->second >= end) || is_result(name);
      }
    }
    return reads && makes;
  }

  bool is_result(const std::string& name) const {
    return std::any_of(program_.outputs.begin(), program_.outputs.end(), [&](const auto& output) {
      const auto* tensor = std::get_if<exported::TensorArgument>(&output);
      return tensor != nullptr && tensor->name == name;
    });
  }

  void cut() {
    const size_t count = result_.main.size();
    size_t begin = 0;
    for (size_t k = 1; k <= count; ++k) {
      if (k < count && illegal_[k]) continue;
      if (stands_alone(begin, k)) {
        result_.groups.push_back({begin, k});
        begin = k;
      }
    }
    // What is left at the end belongs to the last layer.
    if (begin < count) {
      if (result_.groups.empty())
        result_.groups.push_back({0, count});
      else
        result_.groups.back().end = count;
    }
  }

  const FlatProgram& program_;
  const std::vector<StepFacts>& facts_;
  const Origins& origins_;
  const AliasSets& aliases_;
  std::string batch_symbol_;
  std::set<std::string> varying_;            ///< made by repeated steps of the user's inputs
  std::map<std::string, size_t> made_at_;    ///< by which main step
  std::map<std::string, size_t> last_read_;  ///< by which main step
  std::vector<bool> illegal_;
  Grouping result_;
};

}  // namespace

Grouping group_steps(const FlatProgram& program, const std::vector<StepFacts>& facts,
                     const Origins& origins, const AliasSets& aliases,
                     const std::string& batch_symbol) {
  return Grouper(program, facts, origins, aliases, batch_symbol).run();
}

}  // namespace penstock::imported
