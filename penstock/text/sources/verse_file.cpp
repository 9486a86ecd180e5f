#include "penstock/text/sources/verse_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include "penstock/text/sources/little_endian.h"
#include "penstock/util/error.h"

namespace penstock::text {

namespace {

constexpr size_t kBlockEntryBytes = 12;
constexpr size_t kVerseEntryBytes = 10;
constexpr size_t kMaxEntries = 1'000'000;
constexpr size_t kMaxTextBytes = size_t{512} << 20;
/// zlib packs no tighter than this: a larger claim is a lie.
constexpr size_t kMaxPacking = 1032;

/// Unpacks each block once, when a verse first needs it.
class Blocks {
 public:
  Blocks(const VerseFiles& files, std::string_view place) : files_(files), place_(place) {
    if (files.blocks.size() % kBlockEntryBytes != 0)
      fail(fmt::format("the index of blocks has {} bytes, expected a multiple of {}",
                       files.blocks.size(), kBlockEntryBytes));
    if (files.blocks.size() / kBlockEntryBytes > kMaxEntries)
      fail(fmt::format("expected at most {} blocks", kMaxEntries));
    unpacked_.resize(files.blocks.size() / kBlockEntryBytes);
  }

  std::string_view at(uint32_t block, size_t verse) {
    if (block >= unpacked_.size())
      fail(fmt::format("entry {} is in block {} of {}", verse, block, unpacked_.size()));
    if (unpacked_[block].empty()) unpacked_[block] = unpack(block);
    return unpacked_[block];
  }

  [[noreturn]] void fail(const std::string& what) const { throw ParseError(place_, 0, what); }

 private:
  std::string unpack(size_t block) {
    const size_t entry = block * kBlockEntryBytes;
    const size_t begin = little_endian(files_.blocks, entry);
    const size_t packed = little_endian(files_.blocks, entry + 4);
    const size_t size = little_endian(files_.blocks, entry + 8);
    if (begin > files_.packed.size() || packed > files_.packed.size() - begin)
      fail(fmt::format("block {} ends behind its file: {} bytes from byte {} of {}", block, packed,
                       begin, files_.packed.size()));
    total_ += size;
    if (size == 0 || size > packed * kMaxPacking || total_ > kMaxTextBytes)
      fail(fmt::format("block {} of {} bytes cannot have {} bytes unpacked", block, packed, size));
    std::string text(size, '\0');
    uLongf written = size;
    const int code = uncompress(reinterpret_cast<Bytef*>(text.data()), &written,
                                reinterpret_cast<const Bytef*>(files_.packed.data() + begin),
                                static_cast<uLong>(packed));
    if (code != Z_OK || written != size)
      fail(fmt::format("block {} is damaged: zlib could not unpack it to {} bytes", block, size));
    return text;
  }

  const VerseFiles& files_;
  std::string_view place_;
  std::vector<std::string> unpacked_;
  size_t total_ = 0;
};

}  // namespace

std::vector<VerseEntry> parse_verses(const VerseFiles& files, std::string_view place) {
  Blocks blocks(files, place);
  if (files.verses.size() % kVerseEntryBytes != 0)
    blocks.fail(fmt::format("the index of verses has {} bytes, expected a multiple of {}",
                            files.verses.size(), kVerseEntryBytes));
  const size_t count = files.verses.size() / kVerseEntryBytes;
  if (count > kMaxEntries)
    blocks.fail(fmt::format("expected at most {} entries, found {}", kMaxEntries, count));
  std::vector<VerseEntry> entries(count);
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = i * kVerseEntryBytes;
    const size_t begin = little_endian(files.verses, entry + 4);
    const size_t size = little_endian(files.verses, entry + 8, 2);
    entries[i].block = little_endian(files.verses, entry);
    if (size == 0) continue;
    const std::string_view block = blocks.at(entries[i].block, i);
    if (begin > block.size() || size > block.size() - begin)
      blocks.fail(fmt::format("entry {} ends behind its block: {} bytes from byte {} of {}", i,
                              size, begin, block.size()));
    total += size;
    if (total > kMaxTextBytes) blocks.fail("its verses overlap");
    entries[i].text = block.substr(begin, size);
  }
  return entries;
}

}  // namespace penstock::text
