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
#include "penstock/imported/team_attempt.h"
#include "penstock/imported/team_sizes.h"
#include "penstock/shard/shardable.h"

namespace penstock::imported {

/// Of one layer; not thread-safe. Sizes are those of the whole value.
class TeamValues {
 public:
  /// `member`: whose steps are made; null: types alone.
  TeamValues(const LayerParts& parts, const FlatProgram& program,
             const std::vector<shard::Type>& inputs, shard::Walk& walk, const shard::Member* member,
             const TeamAttempt& attempt);

  /// As the step of the program that is looked at reads it.
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
  /// The name of a part that is read beside `like`, whose region may have more units: then members
  /// share units, and it is the member's own. `repeats`: the step itself reads each unit of the
  /// former with all units of the latter that it serves. Throws Refused.
  std::string beside(const std::string& name, const shard::Type& like, bool repeats,
                     const StepEdit& edit);
  /// Parts are summed or gathered. Throws Refused where several members have the same.
  void keep_apart(const shard::Type& part, const StepEdit& edit);
  [[noreturn]] void refuse(const shard::Type& part, const StepEdit& edit,
                           const std::string& why) const;
  /// A reader of the part takes it apart there. Throws InBlocks, RowCuts or Refused.
  [[noreturn]] void cut(const std::string& name, const std::set<int64_t>& at,
                        const StepEdit& edit) const;

  // team_sequences.cpp: parts of the places of sequences.
  bool is_sequence(const shard::Type& type) const { return walk_.regions().is_sequence(type); }
  /// Whether the step reads such a part, but for those that it reads whole.
  bool reads_sequence(const StepEdit& edit) const;
  /// The step reads all places of such a part: as equal, or pending.
  void take_whole(const std::string& name);
  /// How members have the sum of partial numbers of these sizes: in parts of the places, or equal.
  shard::Type type_of_sum(const std::string& like);
  /// Where rows of numbers, one for each place of each sample, are laid out as [samples, places,
  /// numbers] by the only step that reads them, and are summed into parts of the places: that step.
  std::optional<StepEdit> laid_out(const std::string& rows);
  /// That step has been emitted.
  void skip(const StepEdit& step) { skipped_.insert(step.outputs().front()); }
  bool is_skipped(const StepEdit& step) const;

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
  /// Whether the step would give it a gradient.
  bool has_gradient(const std::string& name, const StepEdit& edit) const {
    return with_gradient_.contains(name) && edit.step().gradient;
  }
  /// Whether a step or another layer reads it.
  bool is_read(const std::string& name) const;
  /// Its sizes in the example that the program was exported with. Throws ConfigError.
  std::vector<int64_t> sizes_in_example(const std::string& name) const;
  /// What members exchange inside of a step.
  void add_exchanges(const shard::Exchanges& some);
  /// Of a value that is read as equal. Throws ReadAsEqual and NoSequences.
  void read_equal(const std::string& name);

  /// Before the rule of a step of the program.
  void begin(size_t step);
  /// Emits a step that reads no parts: what it makes is pending where all is that it reads, and
  /// equal otherwise.
  void pass(const StepEdit& edit);
  /// Emits the step; outputs that are not set are equal.
  void emit(StepEdit edit);
  /// A step of the team; returns the name of what it makes, which has the sizes of `like`.
  std::string emit(TeamStep team, std::vector<exported::NamedArgument> inputs,
                   const std::string& like, const shard::Type& type, std::string name = {});
  /// The sum of partial numbers over the members, equal or in parts.
  std::string emit_sum(const std::string& partial, const std::string& like, const shard::Type& type,
                       const std::string& name);
  void set(const std::string& name, const shard::Type& type);
  /// Numbers of which the sum over the members is what `like` describes.
  void set_partial(const std::string& name, const std::string& like);
  /// The candidate whose rows the part's places are is the same.
  void keep_origin(const std::string& from, const std::string& to);
  /// The member's length. Whole where there is no member.
  int64_t own(const shard::Type& type) const;
  /// What a step of the member must know of the part.
  TeamStep team_step(TeamStep::Kind kind, const shard::Type& type) const;

  /// After the last step. Throws ReadAsEqual.
  shard::LayerTypes types() const;
  FlatProgram take_program() { return std::move(made_); }
  /// Of all values that are not equal.
  std::map<std::string, shard::Type> take_types() { return std::move(types_); }

 private:
  void find_changes();
  bool can_be_pending(const StepEdit& edit) const;
  void pass_pending(StepEdit edit);
  /// The name of the value with all its places, equal or pending.
  std::string gathered(const std::string& name, TeamStep::Kind kind);
  /// Of a value of the program, which the member has by that name.
  std::string form(TeamStep team, const std::string& name, const std::string& held,
                   const shard::Type& type);
  const shard::Type& type_made(const std::string& name) const;
  shard::Type type_of_input(const std::string& name) const;
  std::string root_of(std::string name) const;
  [[noreturn]] void refuse_units(const shard::Type& one, const shard::Type& other,
                                 const StepEdit& edit) const;
  /// The step, where it reads weights that several members have: their gradients are summed.
  StepEdit with_sums_of_copies(StepEdit edit);
  std::string fresh(const std::string& what, const std::string& name);

  const LayerParts& parts_;
  const FlatProgram& program_;
  shard::Walk& walk_;
  const shard::Member* member_;
  const TeamAttempt& attempt_;
  TeamSizes sizes_;
  FlatProgram made_;
  std::map<std::string, shard::Type> types_;
  std::map<std::string, std::string> origins_;  ///< of parts: the candidate that they come from
  std::map<std::string, std::string> like_;  ///< of values that the program has not: those it has
  std::set<std::string> with_gradient_;
  std::map<std::string, std::string> pending_;  ///< values and those with a summed gradient
  std::map<std::pair<std::string, size_t>, std::string> own_parts_;
  std::map<std::string, std::string> summed_copies_;
  std::set<std::string> read_equal_;
  std::set<std::string> skipped_;   ///< what steps make that have been emitted with others
  std::set<std::string> as_whole_;  ///< parts of sequences that the step reads whole
  std::map<std::pair<std::string, TeamStep::Kind>, std::string> gathered_;
  std::map<std::string, size_t> made_pending_;  ///< by which step of the program
  std::map<std::string, size_t> num_reads_;
  shard::Exchanges inside_;
  std::map<std::string, std::string> shares_memory_;
  std::map<std::string, size_t> last_change_;  ///< in place, by which step
  size_t position_ = 0;
};

}  // namespace penstock::imported
