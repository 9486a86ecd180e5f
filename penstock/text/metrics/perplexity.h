// Perplexity: how many equally likely choices would be as hard to guess as the text was.
//
//   perplexity(total_loss, num_words);
#pragma once

#include <cmath>
#include <cstdint>

namespace penstock::text {

/// exp(loss / count) of a summed negative log-likelihood in nats. Counted in tokens, it is that of
/// this vocabulary alone; counted in the words of the text, vocabularies can be compared. Not a
/// number where `count` is not positive; infinite where the mean passes 709.
inline double perplexity(double total_loss, int64_t count) {
  return count > 0 ? std::exp(total_loss / static_cast<double>(count)) : std::nan("");
}

}  // namespace penstock::text
