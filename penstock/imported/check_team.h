// Proves a member's steps of a layer of a program from the types of their values. Knows nothing of
// how the steps were made (team_rules.h): a sum that is left out, a bias that is added twice, a
// gradient that is not summed, a wrong slice are all found. Internal to imported.
//
//   for (const std::string& error : check_team({parts, program, made, member})) ...
//     // "'linear_3' (layers.0.o_proj): linear makes partial numbers, and adds a bias to them"
#pragma once

#include <string>
#include <vector>

#include "penstock/imported/program_layer.h"
#include "penstock/imported/team_layer.h"
#include "penstock/shard/shardable.h"

namespace penstock::imported {

struct TeamProof {
  const LayerParts& parts;     ///< of the whole layer
  const FlatProgram& program;  ///< likewise
  TeamLayer made;              ///< the member's steps, and the types of their values
  shard::Member member;
};

/// Empty: the steps are sound. Steps that move numbers are run on numbers that say their place;
/// others must fit the rule of their operator. Of large values only strides are compared, or short
/// ones stand for them; pad, pixel_shuffle and repeat_interleave take memory for all numbers.
std::vector<std::string> check_team(const TeamProof& proof);

}  // namespace penstock::imported
