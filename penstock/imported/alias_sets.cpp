#include "penstock/imported/alias_sets.h"

#include <algorithm>
#include <utility>

namespace penstock::imported {

namespace {

using Parents = std::map<std::string, std::string>;

/// The end of the chain, to which every name on it points afterwards.
std::string end_of(Parents& parents, const std::string& name) {
  std::string end = name;
  for (auto found = parents.find(end); found != parents.end(); found = parents.find(end))
    end = found->second;
  std::string at = name;
  for (auto found = parents.find(at); found != parents.end() && found->second != end;
       found = parents.find(at)) {
    at = std::exchange(found->second, end);
  }
  return end;
}

}  // namespace

AliasSets::AliasSets(const std::vector<StepFacts>& facts) {
  for (const StepFacts& step : facts) {
    for (const std::string& from : step.aliased) {
      for (const std::string& output : step.outputs) {
        if (output.empty()) continue;
        const std::string one = end_of(root_, output);
        const std::string other = end_of(root_, from);
        if (one != other) root_.emplace(one, other);
      }
    }
  }
  for (auto& [name, end] : root_) end = end_of(root_, end);
  for (const StepFacts& step : facts) {
    for (const std::string& name : step.mutated) changed_.insert(root(name));
  }
}

const std::string& AliasSets::root(const std::string& name) const {
  const auto found = root_.find(name);
  return found == root_.end() ? name : found->second;
}

bool AliasSets::changes(const StepFacts& facts, const std::string& name) const {
  return std::any_of(facts.mutated.begin(), facts.mutated.end(),
                     [&](const std::string& one) { return root(one) == root(name); });
}

}  // namespace penstock::imported
