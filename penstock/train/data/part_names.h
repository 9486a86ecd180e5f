// The names by which people call the parts of a data set, of folders and of arrays alike.
//
//   part_named("Training") == Part::Train;
//   part_named("dog") == std::nullopt;
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace penstock::train {

/// Of test and validation samples, the test set is the first that is there.
enum class Part : uint8_t { Train, Test, Validation };

inline constexpr std::array<std::pair<std::string_view, Part>, 8> kPartNames = {
    {{"train", Part::Train},
     {"training", Part::Train},
     {"test", Part::Test},
     {"testing", Part::Test},
     {"val", Part::Validation},
     {"valid", Part::Validation},
     {"validation", Part::Validation},
     {"dev", Part::Validation}}};

/// Whether large or small letters, it is the same name.
inline std::optional<Part> part_named(std::string_view name) {
  const auto is_same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  for (const auto& [known, part] : kPartNames)
    if (std::equal(name.begin(), name.end(), known.begin(), known.end(), is_same)) return part;
  return std::nullopt;
}

}  // namespace penstock::train
