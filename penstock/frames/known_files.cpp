#include "penstock/frames/known_files.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace penstock::frames {
namespace {

/// What stands at a place of the file.
struct Words {
  size_t at = 0;
  std::string_view bytes;
};
struct KnownFile {
  std::string_view name;
  Words first;
  Words second = {};  ///< empty: none
};

template <size_t Size>
constexpr Words words(const char (&bytes)[Size], size_t at = 0) {
  return {at, std::string_view(bytes, Size - 1)};  // zeros count
}

constexpr std::array kKnown = {
    KnownFile{"a YUV4MPEG2 video (.y4m)", words("YUV4MPEG2")},
    KnownFile{"an MP4 or QuickTime video", words("ftyp", 4)},
    KnownFile{"a QuickTime video", words("moov", 4)},
    KnownFile{"a QuickTime video", words("mdat", 4)},
    KnownFile{"an AVI video", words("RIFF"), words("AVI ", 8)},
    KnownFile{"a WebP image", words("RIFF"), words("WEBP", 8)},
    KnownFile{"a WAV sound", words("RIFF"), words("WAVE", 8)},
    KnownFile{"a Matroska or WebM video", words("\x1A\x45\xDF\xA3")},
    KnownFile{"an Ogg file", words("OggS")},
    KnownFile{"a Flash video", words("FLV\x01")},
    KnownFile{"an MPEG programme stream", words("\0\0\x01\xBA")},
    KnownFile{"an H.264 stream", words("\0\0\0\x01\x67")},
    KnownFile{"an H.265 stream", words("\0\0\0\x01\x40\x01")},
    KnownFile{"an IVF video", words("DKIF")},
    KnownFile{"a PNG image", words("\x89PNG\r\n\x1A\n")},
    KnownFile{"a JPEG image", words("\xFF\xD8\xFF\xE0")},
    KnownFile{"a JPEG image", words("\xFF\xD8\xFF\xE1")},
    KnownFile{"a JPEG image", words("\xFF\xD8\xFF\xDB")},
    KnownFile{"a GIF image", words("GIF87a")},
    KnownFile{"a GIF image", words("GIF89a")},
    KnownFile{"a TIFF image", words("II*\0")},
    KnownFile{"a TIFF image", words("MM\0*")},
    KnownFile{"an array of NumPy's (.npy)", words("\x93NUMPY")},
    KnownFile{"an HDF5 file", words("\x89HDF\r\n\x1A\n")},
    KnownFile{"a zip archive", words("PK\x03\x04")},
    KnownFile{"an xz file", words("\xFD"
                                  "7zXZ\0")},
    KnownFile{"a 7z archive", words("7z\xBC\xAF\x27\x1C")},
    KnownFile{"a zstd file", words("\x28\xB5\x2F\xFD")},
    KnownFile{"a bzip2 file", words("BZh"), words("1AY&SY", 4)},
    KnownFile{"an LZ4 file", words("\x04\x22\x4D\x18")},
};

bool has(std::string_view begin, const Words& wanted) {
  return begin.size() >= wanted.at + wanted.bytes.size() &&
         begin.substr(wanted.at, wanted.bytes.size()) == wanted.bytes;
}

/// Three bytes, flags, a time, and two bytes that say how it was packed and by which system.
bool is_gzip(std::string_view begin) {
  if (begin.size() < 10 || !begin.starts_with("\x1F\x8B\x08")) return false;
  const auto flags = static_cast<uint8_t>(begin[3]);
  const auto packing = static_cast<uint8_t>(begin[8]);
  const auto system = static_cast<uint8_t>(begin[9]);
  return flags < 0x20 && (packing == 0 || packing == 2 || packing == 4) &&
         (system < 14 || system == 0xFF);
}

/// "P6", a blank and a number.
bool is_portable_map(std::string_view begin) {
  return begin.size() > 3 && begin[0] == 'P' && begin[1] >= '4' && begin[1] <= '7' &&
         (begin[2] == '\n' || begin[2] == ' ') &&
         ((begin[3] >= '0' && begin[3] <= '9') || begin[3] == '#' || begin[3] == 'W');
}

}  // namespace

std::string_view known_file(std::string_view begin) {
  const auto* const found = std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownFile& file) {
    return has(begin, file.first) && has(begin, file.second);
  });
  if (found != kKnown.end()) return found->name;
  if (is_gzip(begin)) return "a gzip file";
  return is_portable_map(begin) ? "a PPM or PGM image" : "";
}

}  // namespace penstock::frames
