#include "penstock/captions/caption_source.h"

#include <fmt/format.h>

#include <utility>

#include "penstock/util/error.h"

namespace penstock::captions {

void check_shares(const text::SplitShares& shares) {
  for (const auto& [part, share] : {std::pair{"valid", shares.valid}, {"test", shares.test}}) {
    if (!(share >= 0 && share <= 0.5))
      throw ConfigError(
          fmt::format("the share of {} must be from 0 to 0.5, found {}", part, share));
  }
}

}  // namespace penstock::captions
