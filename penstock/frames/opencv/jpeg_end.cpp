#include "penstock/frames/opencv/jpeg_end.h"

#include <cstddef>
#include <cstdint>

namespace penstock::frames {
namespace {

// Marks of ITU-T T.81, behind a byte 0xFF.
constexpr uint8_t kMark = 0xFF;
constexpr uint8_t kStuffed = 0x00;
constexpr uint8_t kTemporary = 0x01;
constexpr uint8_t kFirstRestart = 0xD0;
constexpr uint8_t kBegin = 0xD8;
constexpr uint8_t kEnd = 0xD9;

uint8_t byte(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

/// Marks without a length behind them.
bool stands_alone(uint8_t mark) {
  return mark == kStuffed || mark == kTemporary || (mark >= kFirstRestart && mark <= kBegin);
}

}  // namespace

bool is_jpeg(std::string_view bytes) {
  return bytes.size() >= 3 && byte(bytes, 0) == kMark && byte(bytes, 1) == kBegin &&
         byte(bytes, 2) == kMark;
}

bool has_jpeg_end(std::string_view bytes) {
  size_t at = 0;
  // Compressed data have no mark in them but stuffed bytes and restarts, so the next mark with a
  // length begins a segment.
  while ((at = bytes.find(static_cast<char>(kMark), at)) != std::string_view::npos) {
    if (++at == bytes.size()) return false;
    const uint8_t mark = byte(bytes, at);
    if (mark == kEnd) return true;
    if (mark == kMark) continue;
    ++at;
    if (stands_alone(mark)) continue;
    if (bytes.size() - at < 2) return false;
    at += static_cast<size_t>(byte(bytes, at) << 8 | byte(bytes, at + 1));
    if (at > bytes.size()) return false;
  }
  return false;
}

}  // namespace penstock::frames
