// Low-rank adapters (LoRA: Hu et al. 2021, section 4.1) in a program whose module has none: beside
// the product with a frozen weight W stands scale * B A x, and A and B alone are trained.
//
//   const Adapted adapted = add_adapters(program, {.rank = 8, .targets = {"q_proj", "v_proj"}});
//
// Names, beginnings and order of sums are those of PEFT 0.21.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/exported/program.h"

namespace penstock::exported {

struct AdapterSpec {
  int64_t rank = 8;
  double alpha = 8;  ///< the scale is alpha / rank
  /// Each is the end of a module's path, of whole words ("q_proj", "attention.out"), such an end or
  /// a path with * for any characters ("layers.1*.q_proj"), or kAllLinear.
  std::vector<std::string> targets = {};
};
/// Every linear module but the last one, the output head, and those whose weight others read, too.
inline constexpr const char* kAllLinear = "all-linear";

struct Adapted {
  std::vector<std::string> modules;  ///< paths, in the order of the program
  /// Some have weights [in, out], as Conv1D of transformers.
  bool has_transposed = false;
};

/// "q_proj,v_proj" -> {"q_proj", "v_proj"}. Throws ConfigError for an empty one.
std::vector<std::string> parse_adapter_targets(const std::string& text);

/// Adds A [rank, in] and B [out, rank] to each module that a target means, as parameters
/// "base_model.model.PATH.lora_A.weight" of float32, and freezes all others. A begins uniformly in
/// +-1/sqrt(in) (Kaiming, as PEFT), B with zeros. A product of another type than float32 is cast:
/// the adapter computes in float32, and the sum gets the product's type. Modules that are called
/// several times have one adapter. Throws ConfigError naming the module: a target that means no
/// linear module (with names that are like it), one whose weight is read otherwise, too (a tied
/// embedding), a rank that is less than 1 or more than the weight's sizes, a program that has
/// adapters already.
Adapted add_adapters(Program& program, const AdapterSpec& spec);

}  // namespace penstock::exported
