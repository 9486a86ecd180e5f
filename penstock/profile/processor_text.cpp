#include "penstock/profile/processor_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/util/text/plural.h"

namespace penstock::profile {

std::string processor_text(std::string_view processor, int threads) {
  return fmt::format("{}, {}", processor, plural(threads, "thread"));
}

bool is_of_processor(const Profile& profile) {
  const std::string_view text = profile.device;
  const size_t comma = text.rfind(", ");
  if (profile.source != "measured" || comma == std::string_view::npos) return false;
  const std::string_view count = text.substr(comma + 2);
  const size_t digits = std::min(count.find_first_not_of("0123456789"), count.size());
  const std::string_view noun = count.substr(digits);
  return digits > 0 && (noun == " thread" || noun == " threads");
}

}  // namespace penstock::profile
