// A program as one list of steps: graphs inside of operators (no_grad, autocast that is off) are
// laid open, arithmetic on sizes is left out (symbolic_size.h evaluates it), and so are assertions.
// Internal to imported.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/exported/program.h"
#include "penstock/imported/team_step.h"

namespace penstock::imported {

struct Step {
  exported::Node node;   ///< names as in FlatProgram
  bool gradient = true;  ///< false inside torch.no_grad()
  /// Which random numbers it draws, among the steps of its layer; nothing: as its place says.
  std::optional<uint64_t> ordinal = {};
  std::optional<TeamStep> team = {};  ///< of a member's layer, where it is none of the whole one
};

struct FlatProgram {
  std::vector<Step> steps;
  std::map<std::string, exported::TensorMeta> tensors;
  std::map<std::string, exported::SymbolicInt> sizes;
  std::vector<exported::Argument> outputs;
};

/// What keeps a program from being trained here, all of it, so that a user sees it at once.
using Reasons = std::vector<std::string>;

/// "'conv2d_1' (layers.0.conv, model.py:17)": the node, its module and the line that made it.
std::string place_of(const exported::Node& node);

/// Some steps, in order, with the tensors and sizes that they and `names` speak of; without the
/// lines that made them.
FlatProgram excerpt(const FlatProgram& program, const std::vector<size_t>& steps,
                    const std::vector<std::string>& names);

/// Adds to `reasons` what cannot be laid open.
FlatProgram flatten(const exported::Program& program, Reasons& reasons);

}  // namespace penstock::imported
