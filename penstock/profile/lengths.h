// How long the sequences are that a profile was measured with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::profile {

/// Micro-batches whose sequences have one length.
struct LengthGroup {
  double share = 1;  ///< of all micro-batches; the shares of a profile's groups add up to 1
  /// Of one sample of each of the model's inputs; the first size is that of the sequence.
  std::vector<std::vector<int64_t>> input_shapes;

  bool operator==(const LengthGroup&) const = default;
};

/// Throws ConfigError: a share that is not in (0, 1], shares that do not add up to 1, groups of
/// other numbers of inputs, a size below 1.
void validate(const std::vector<LengthGroup>& lengths);

/// Of each input the range of the first sizes and their mean: "8 to 40 places (mean 17.5), 9 to 44
/// (20.3)". Empty where there are no groups.
std::string lengths_text(const std::vector<LengthGroup>& lengths);

}  // namespace penstock::profile
