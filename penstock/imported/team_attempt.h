// What is known of a layer's steps from earlier attempts to find the types of their values: each
// attempt that fails says what the next one has to know (team_layer.cpp). Internal to imported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace penstock::imported {

struct TeamAttempt {
  /// The rows of these candidates are read in pieces that end at these places.
  std::map<std::string, std::set<int64_t>> cuts = {};
  /// Steps that need all places of sequences whose places the members have in parts.
  std::set<size_t> whole = {};
  /// Steps whose results are read as equal values, though what they read could be pending.
  std::set<size_t> equal = {};
  /// Sequences may be in parts.
  bool sequences = true;
};

/// The rows of a candidate of this layer are read in pieces that end at these places.
struct RowCuts {
  std::string parameter;
  std::set<int64_t> at;
};

/// What this step makes is read as equal.
struct ReadAsEqual {
  size_t step = 0;
};

/// A part of a sequence would be in another form while a step changes it in place, or the like.
struct NoSequences {};

}  // namespace penstock::imported
