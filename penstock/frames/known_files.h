// What a file or stream is by its first bytes, to notice films and archives where raw pixels are
// expected: any bytes are pixels.
//
//   known_file("YUV4MPEG2 W8 H8") == "a YUV4MPEG2 video (.y4m)";
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock::frames {

/// As many first bytes tell all kinds.
inline constexpr size_t kKnownFileBytes = 16;

/// In words; empty: none that is known. Each kind is told by four bytes or more, and not by such as
/// a plain colour repeats.
std::string_view known_file(std::string_view begin);

}  // namespace penstock::frames
