// Which values of a program may share memory, and which of them it changes. Internal to imported.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "penstock/imported/step_facts.h"

namespace penstock::imported {

class AliasSets {
 public:
  explicit AliasSets(const std::vector<StepFacts>& facts);

  /// One name for all that may share memory with this one.
  const std::string& root(const std::string& name) const;
  /// Whether some step changes memory that the value may share.
  bool is_changed(const std::string& name) const { return changed_.contains(root(name)); }
  /// Whether this step changes memory that the value may share.
  bool changes(const StepFacts& facts, const std::string& name) const;

 private:
  std::map<std::string, std::string> root_;  ///< where it is another name
  std::set<std::string> changed_;            ///< roots
};

}  // namespace penstock::imported
