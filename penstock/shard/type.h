// What the members of a team hold of one value of a model: the types by which a model that is
// spread over a team is proven equal to the whole one (check_types.h). As in types for SPMD
// programs: what is equal everywhere is told apart by what its gradient is.
//
//   Type::part(2, region)      // each member has some of the features
//   Type::part(1, regions.make_sequence(512), {512})   // of the places of a sequence
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::shard {

enum class Kind : uint8_t {
  Equal,    ///< the same numbers everywhere, and the same gradient
  Pending,  ///< the same numbers; the gradient is the sum of the members' gradients
  Partial,  ///< the value is the sum of the members' numbers; each gets the whole gradient
  Part,     ///< each member has its part along a dimension, and gets that part's gradient
};

/// Values that are parts in the same way belong to one region: what an operation joins must be
/// divided alike.
using Region = size_t;

struct Type {
  Kind kind = Kind::Equal;
  size_t dimension = 0;  ///< of a part; 0 is a value's batch, or a weight's first dimension
  Region region = 0;     ///< of a part
  /// Of a part: lengths of the blocks along the dimension, each of which is divided, such as
  /// queries, keys and values side by side. One where the whole length is.
  std::vector<int64_t> blocks = {};

  static Type equal() { return {}; }
  static Type pending() { return {.kind = Kind::Pending}; }
  static Type partial() { return {.kind = Kind::Partial}; }
  static Type part(size_t dimension, Region region, std::vector<int64_t> blocks) {
    return {Kind::Part, dimension, region, std::move(blocks)};
  }
  bool is_part() const { return kind == Kind::Part; }
  bool operator==(const Type&) const = default;
};

/// "equal", "pending", "partial", "part along dimension 2".
std::string to_string(const Type& type);

/// How the regions of a model are divided. Each has a number of units that stay together, such as
/// heads: the greatest that divides every block of the region. Where there are fewer than members,
/// such as heads of keys and values, several members have the same one (share()). Not thread-safe.
class Regions {
 public:
  Region make();
  /// How long the sequences of micro-batches are. Varying: their length is divided at run time
  /// (model::Division without lengths). Fixed: it is the model's; members may have unequal parts.
  enum class Lengths : uint8_t { Varying, Fixed };
  /// Of places of sequences that have `length` of them in the model.
  Region make_sequence(int64_t length, Lengths lengths = Lengths::Varying);
  bool is_sequence(Region region) const { return sequences_[find(region)].has_value(); }
  bool is_sequence(const Type& type) const { return type.is_part() && is_sequence(type.region); }
  bool is_sequence(const Type& type, Lengths lengths) const {
    return type.is_part() && sequences_[find(type.region)] == lengths;
  }
  size_t size() const { return parents_.size(); }
  /// From here on these two are one.
  void join(Region a, Region b);
  bool are_joined(Region a, Region b) const { return find(a) == find(b); }
  /// Each unit of `few`, such as a head of keys and values, serves as many units of `many`, such as
  /// heads of queries: where members are more than the former, those that have some of the latter
  /// have a copy. False, and nothing is changed: they cannot be divided so.
  bool share(Region few, Region many, int team);
  bool are_shared(Region few, Region many) const;
  /// Whether several members of the team have the same.
  bool is_copied(Region region, int team) const;
  /// Whether every member of the team has at least one unit, alone or as a copy.
  bool can_divide(Region region, int team) const;
  /// Parts of the region are summed or gathered: no two members may have the same. False: they
  /// have.
  bool keep_apart(Region region);
  /// For regions that share units, the one that has most; otherwise the region itself.
  Region leader(Region region) const;
  /// The region's units divide `length`.
  void divide(Region region, int64_t length);
  /// 0: nothing has been said.
  int64_t units(Region region) const { return units_[find(region)]; }
  /// The region that stands for all that are joined with it.
  Region find(Region region) const;

  /// How many units of the region member `member` of `team` has, and how many those before it have:
  /// as equal as can be, the first members have one more. A unit that several members have is that
  /// of each; then units that share it are divided among those members.
  int64_t units_of(Region region, int team, int member) const;
  int64_t units_before(Region region, int team, int member) const;

  /// The member's length of a part: of all blocks together.
  int64_t length(const Type& type, int team, int member) const;

 private:
  std::vector<Region> parents_;
  std::vector<int64_t> units_;
  std::vector<std::optional<Lengths>> sequences_;
  std::vector<int64_t> groups_;                ///< of units that share one of another region; or 0
  std::vector<std::optional<Region>> served_;  ///< whose units share this one's
  std::vector<bool> is_apart_;
};

}  // namespace penstock::shard
