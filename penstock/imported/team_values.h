// The values of a layer of a program while it is made one for a member of a team: the type of each
// (shard/type.h), and the steps that the member runs. Rules of operators (team_rules.h) read types,
// ask for values in other forms, and emit steps. Internal to imported.
//
//   edit.rename("x", values.pending("x", edit));      // its gradient will be summed
//   values.emit(edit);
//   values.set("y", shard::Type::part(2, region, {64}));
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "penstock/imported/program_layer.h"
#include "penstock/imported/step_edit.h"
#include "penstock/imported/team_sizes.h"
#include "penstock/shard/shardable.h"

namespace penstock::imported {

/// The rows of a candidate of this layer are read in pieces that end at these places.
struct RowCuts {
  std::string parameter;
  std::set<int64_t> at;
};

/// Of one layer; not thread-safe. Sizes are those of the whole value.
class TeamValues {
 public:
  /// `member`: whose steps are made; null: types alone. `cuts`: of candidates, by name.
  TeamValues(const LayerParts& parts, const FlatProgram& program,
             const std::vector<shard::Type>& inputs, shard::Walk& walk, const shard::Member* member,
             const std::map<std::string, std::set<int64_t>>& cuts);

  const shard::Type& type(const std::string& name) const;
  bool is_part(const std::string& name) const { return type(name).is_part(); }
  /// Of rank 0 where the program does not describe it.
  const ValueSizes& sizes(const std::string& name);
  const FlatProgram& program() const { return program_; }
  shard::Regions& regions() { return walk_.regions(); }

  /// The region's units divide the length. Throws Refused where that leaves too few of them.
  void divide(shard::Region region, int64_t length, const StepEdit& edit);
  /// Both are divided alike, with the same blocks. Throws Refused.
  void join(const shard::Type& one, const shard::Type& other, const StepEdit& edit);
  [[noreturn]] void refuse(const shard::Type& part, const StepEdit& edit,
                           const std::string& why) const;
  /// A reader of the part takes it apart there. Throws InBlocks, RowCuts or Refused.
  [[noreturn]] void cut(const std::string& name, const std::set<int64_t>& at,
                        const StepEdit& edit) const;

  /// The type of a candidate with these rows, if it is spread.
  std::optional<shard::Type> spread(const std::string& parameter, size_t dimension,
                                    const StepEdit& edit);
  /// The name of the equal value with a gradient that is summed over the members, since it is read
  /// beside a part. The value itself where it has none.
  std::string pending(const std::string& name, const shard::Type& part, const StepEdit& edit);
  /// The name of an equal value's part. Throws Refused.
  std::string part(const std::string& name, const shard::Type& type, const StepEdit& edit);
  /// Whether this step or a later one changes it in place.
  bool is_changed(const std::string& name) const;
  /// Of an equal value that is read as it is.
  void read_equal(const std::string& name) { read_equal_.insert(name); }

  /// Before the rule of a step of the program.
  void begin(size_t step) { position_ = step; }
  /// Emits a step that reads equal values alone.
  void pass(const StepEdit& edit);
  /// Emits the step; outputs that are not set are equal.
  void emit(const StepEdit& edit);
  /// A step of the team; returns the name of what it makes, which has the sizes of `like`.
  std::string emit(TeamStep team, std::vector<exported::NamedArgument> inputs,
                   const std::string& like, const shard::Type& type, std::string name = {});
  void set(const std::string& name, const shard::Type& type);
  /// Numbers of which the sum over the members is what `like` describes.
  void set_partial(const std::string& name, const std::string& like);
  /// The candidate whose rows the part's places are is the same.
  void keep_origin(const std::string& from, const std::string& to);
  /// The member's length. Whole where there is no member.
  int64_t own(const shard::Type& type) const;
  /// What a step of the member must know of the part.
  TeamStep team_step(TeamStep::Kind kind, const shard::Type& type) const;

  /// After the last step.
  shard::LayerTypes types() const;
  FlatProgram take_program() { return std::move(made_); }
  /// Of all values that are not equal.
  std::map<std::string, shard::Type> take_types() { return std::move(types_); }

 private:
  void find_changes();
  std::string root_of(std::string name) const;
  std::string fresh(const std::string& what, const std::string& name);

  const LayerParts& parts_;
  const FlatProgram& program_;
  shard::Walk& walk_;
  const shard::Member* member_;
  const std::map<std::string, std::set<int64_t>>& cuts_;
  TeamSizes sizes_;
  FlatProgram made_;
  std::map<std::string, shard::Type> types_;
  std::map<std::string, std::string> origins_;  ///< of parts: the candidate that they come from
  std::map<std::string, std::string> like_;  ///< of values that the program has not: those it has
  std::set<std::string> with_gradient_;
  std::map<std::string, std::string> pending_;  ///< values and those with a summed gradient
  std::map<std::pair<std::string, size_t>, std::string> own_parts_;
  std::set<std::string> read_equal_;
  std::map<std::string, size_t> num_reads_;
  std::map<std::string, std::string> shares_memory_;
  std::map<std::string, size_t> last_change_;  ///< in place, by which step
  size_t position_ = 0;
};

}  // namespace penstock::imported
