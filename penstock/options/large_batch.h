// The rules of --large-batch (Goyal et al. 2017), each of which can be left out. Plain values
// without tensors; job/large_batch.h carries them out.
//
//   LargeBatchRules rules = parse_large_batch("all,-gamma");
//   to_string(rules) == "scale,warmup,statistics,momentum,decay";
#pragma once

#include <string>

namespace penstock::options {

struct LargeBatchRules {
  bool scale = true;       ///< the learning rate grows with the samples (2.1)
  bool warmup = true;      ///< from the base rate over the first epochs (2.2)
  bool statistics = true;  ///< of batch norm: over as many samples as in a base step (2.3)
  bool momentum = true;    ///< stays where the learning rate changes (3, remark 2)
  bool decay = true;       ///< spares norms and biases (5.1)
  bool gamma = true;       ///< of a block's last norm begins at 0 (5.1)

  bool operator==(const LargeBatchRules&) const = default;
};

/// "all" or "": all rules; otherwise the names, and those with a '-' left out of all. Throws
/// ConfigError with the names.
LargeBatchRules parse_large_batch(const std::string& text);
/// The same in one form: "all", or the names.
std::string to_string(const LargeBatchRules& rules);
/// "scale: ...; warmup: ...": for help texts.
std::string large_batch_help();

}  // namespace penstock::options
