// Whether a JPEG is whole. OpenCV's decoder says nothing when the bytes end early: it fills the
// rest of the picture with what its memory holds.
//
//   if (is_jpeg(content) && !has_jpeg_end(content)) refuse();
#pragma once

#include <string_view>

namespace penstock::frames {

/// Whether the bytes begin as a JPEG does.
bool is_jpeg(std::string_view bytes);

/// Whether a JPEG's segments and compressed data lead to the mark of its end. What follows that
/// does not matter, nor does an end inside a segment, which is that of a preview. O(bytes).
bool has_jpeg_end(std::string_view bytes);

}  // namespace penstock::frames
