#include "penstock/train/data/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/files/input_file.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::train {
namespace {

class Source {
 public:
  virtual ~Source() = default;
  /// Up to `bytes` bytes; fewer only at the end.
  virtual size_t read(uint8_t* out, size_t bytes) = 0;
  /// An upper bound of the bytes that can still come.
  virtual int64_t most_remaining() const = 0;
};

class PlainSource : public Source {
 public:
  explicit PlainSource(std::string_view content) : content_(content) {}

  size_t read(uint8_t* out, size_t bytes) override {
    const size_t count = std::min(bytes, content_.size());
    if (count > 0) std::memcpy(out, content_.data(), count);
    content_.remove_prefix(count);
    return count;
  }
  int64_t most_remaining() const override { return static_cast<int64_t>(content_.size()); }

 private:
  std::string_view content_;
};

/// No more of the file is read than is asked for.
class FileSource : public Source {
 public:
  FileSource(InputFile& file, std::string begin) : file_(file), begin_(std::move(begin)) {
    left_ = file.size() ? std::max<int64_t>(0, *file.size() - std::ssize(begin_)) : INT64_MAX;
  }

  size_t read(uint8_t* out, size_t bytes) override {
    const size_t before = std::min(bytes, begin_.size());
    if (before > 0) std::memcpy(out, begin_.data(), before);
    begin_.erase(0, before);
    const size_t count = file_.read(reinterpret_cast<char*>(out) + before, bytes - before);
    if (left_ != INT64_MAX) left_ = std::max<int64_t>(0, left_ - static_cast<int64_t>(count));
    return before + count;
  }
  int64_t most_remaining() const override { return saturating_add(std::ssize(begin_), left_); }

 private:
  InputFile& file_;
  std::string begin_;  ///< read already
  int64_t left_ = 0;
};

/// `compressed` gives the bytes of the gzip file.
class GzipSource : public Source {
 public:
  GzipSource(std::unique_ptr<Source> compressed, std::string_view place)
      : compressed_(std::move(compressed)), place_(place) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK)
      throw RuntimeError("zlib could not be initialised");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(uint8_t* out, size_t bytes) override {
    size_t done = 0;
    while (done < bytes && !ended_) done += inflate_some(out + done, bytes - done);
    return done;
  }

  /// Deflate expands data by a factor of at most 1032.
  int64_t most_remaining() const override {
    const int64_t left = saturating_add(std::ssize(content_), compressed_->most_remaining());
    return saturating_mul(saturating_add(left, 1), 1032);
  }

 private:
  size_t inflate_some(uint8_t* out, size_t bytes) {
    constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits
    if (content_.empty()) refill();
    const size_t in = content_.size();
    const size_t room = std::min(bytes, kStep);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content_.data()));
    stream_.avail_in = static_cast<uInt>(in);
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    content_.remove_prefix(in - stream_.avail_in);
    if (result == Z_STREAM_END) {
      if (content_.size() < 2) refill();
      end_member();
    } else if (result == Z_BUF_ERROR) {
      throw ParseError(place_, 0, "the gzip data ends too early; the file is truncated");
    } else if (result != Z_OK) {
      throw ParseError(place_, 0,
                       fmt::format("the gzip data is damaged ({})",
                                   stream_.msg != nullptr ? stream_.msg : "zlib error"));
    }
    return room - stream_.avail_out;
  }

  /// A gzip file may hold several members, one after the other.
  void end_member() {
    if (content_.empty()) {
      ended_ = true;
    } else if (content_.substr(0, 2) != "\x1f\x8b") {
      throw ParseError(place_, 0, "other bytes follow the gzip data; expected the end of the file");
    } else if (inflateReset(&stream_) != Z_OK) {
      throw RuntimeError("zlib could not be reset");
    }
  }

  void refill() {
    const size_t kept = content_.size();
    std::copy(content_.begin(), content_.end(), block_.begin());
    const size_t count =
        compressed_->read(reinterpret_cast<uint8_t*>(block_.data()) + kept, block_.size() - kept);
    content_ = std::string_view(block_.data(), kept + count);
  }

  std::unique_ptr<Source> compressed_;
  std::string place_;
  std::vector<char> block_ = std::vector<char>(size_t{1} << 16);
  std::string_view content_;  ///< of the block, what is not inflated yet
  z_stream stream_{};
  bool ended_ = false;
};

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 |
         uint32_t{bytes[3]};
}

uint32_t read_number(Source& source, std::string_view place, const char* what) {
  std::array<uint8_t, 4> bytes{};
  const size_t count = source.read(bytes.data(), bytes.size());
  if (count != bytes.size()) {
    throw ParseError(
        place, 0,
        fmt::format("the file ends inside its header: expected 4 bytes for {}, found {}", what,
                    count));
  }
  return big_endian(bytes.data());
}

std::vector<int64_t> read_sizes(Source& source, int dimensions, std::string_view place) {
  constexpr uint32_t kUnsignedBytes = 0x0800;
  const uint32_t expected = kUnsignedBytes + static_cast<uint32_t>(dimensions);
  const uint32_t magic = read_number(source, place, "the magic number");
  if (magic != expected) {
    throw ParseError(place, 0,
                     fmt::format("expected an IDX file of unsigned bytes with {} dimension{} "
                                 "(magic number {:#010x}), found {:#010x}",
                                 dimensions, dimensions == 1 ? "" : "s", expected, magic));
  }
  std::vector<int64_t> sizes;
  sizes.reserve(static_cast<size_t>(dimensions));
  for (int i = 0; i < dimensions; ++i) sizes.push_back(read_number(source, place, "a size"));
  return sizes;
}

int64_t data_bytes(const std::vector<int64_t>& sizes, std::string_view place) {
  // Zeros count as ones here, so that no part of the shape can overflow either.
  int64_t bound = 1;
  int64_t product = 1;
  for (const int64_t size : sizes) {
    bound = saturating_mul(bound, std::max<int64_t>(size, 1));
    product = saturating_mul(product, size);
  }
  if (bound > kMaxIdxBytes) {
    throw ParseError(place, 0,
                     fmt::format("expected at most {} bytes of data, found sizes {}", kMaxIdxBytes,
                                 fmt::join(sizes, " x ")));
  }
  return product;
}

/// Grows with the data that is read, so that a wrong header cannot exhaust memory.
std::vector<uint8_t> read_body(Source& source, int64_t bytes, std::string_view place) {
  constexpr int64_t kReserve = int64_t{256} << 20;
  constexpr int64_t kChunk = int64_t{1} << 20;
  const int64_t possible = std::min(bytes, source.most_remaining());
  std::vector<uint8_t> body;
  body.reserve(static_cast<size_t>(std::min(possible, kReserve)));
  while (static_cast<int64_t>(body.size()) < bytes) {
    const size_t have = body.size();
    const auto step = static_cast<size_t>(std::min(kChunk, bytes - static_cast<int64_t>(have)));
    body.resize(have + step);
    const size_t count = source.read(body.data() + have, step);
    if (count != step)
      throw ParseError(place, 0,
                       fmt::format("the file is truncated: expected {} bytes of data, found {}",
                                   bytes, have + count));
  }
  return body;
}

}  // namespace

namespace {

/// `begin` is the beginning of what `source` gives, or all of it.
IdxData parse(std::unique_ptr<Source> source, std::string_view begin, int expected_dimensions,
              std::string_view place) {
  if (begin.empty()) throw ParseError(place, 0, "expected an IDX file, found an empty file");
  if (begin.substr(0, 2) == "\x1f\x8b")
    source = std::make_unique<GzipSource>(std::move(source), place);
  IdxData data;
  data.sizes = read_sizes(*source, expected_dimensions, place);
  data.bytes = read_body(*source, data_bytes(data.sizes, place), place);
  uint8_t extra = 0;
  if (source->read(&extra, 1) != 0) {
    throw ParseError(place, 0,
                     fmt::format("expected the end of the file after {} bytes of data, found more",
                                 data.bytes.size()));
  }
  return data;
}

}  // namespace

IdxData parse_idx(std::string_view content, int expected_dimensions, std::string_view place) {
  return parse(std::make_unique<PlainSource>(content), content, expected_dimensions, place);
}

IdxData read_idx(const std::filesystem::path& path, int expected_dimensions) {
  InputFile file(path);
  std::string begin(2, '\0');
  begin.resize(file.read(begin.data(), begin.size()));
  return parse(std::make_unique<FileSource>(file, begin), begin, expected_dimensions,
               path.string());
}

}  // namespace penstock::train
