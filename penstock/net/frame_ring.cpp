#include "penstock/net/frame_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace penstock::net {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t file_bytes() { return page_bytes() + FrameRing::kBytes; }
/// The ring is mapped twice.
size_t mapped_bytes() { return file_bytes() + FrameRing::kBytes; }

/// A frame begins at a multiple of eight.
uint64_t room_of(uint64_t bytes_behind) { return (sizeof(FrameHeader) + bytes_behind + 7) / 8 * 8; }

/// Whether the file has its size for ever: memory that is taken away would end the process.
bool is_ring(int descriptor) {
  struct stat info = {};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  return fstat(descriptor, &info) == 0 && seals >= 0 && (seals & kSeals) == kSeals &&
         info.st_size == static_cast<off_t>(file_bytes());
}

}  // namespace

std::optional<uint64_t> SharedClaims::claim(uint16_t use, uint64_t most, uint64_t total) {
  uint64_t word = word_;
  while (word >> kUseShift == use && (word & kOffset) < total) {
    const uint64_t count = std::min(most, total - (word & kOffset));
    if (word_.compare_exchange_weak(word, word + count)) return word & kOffset;
  }
  return std::nullopt;
}

uint64_t SharedClaims::stop(uint16_t use, uint64_t total) {
  const uint64_t word = word_.exchange((uint64_t{use} << kUseShift) | total);
  return std::min(word & kOffset, total);
}

// ---- the memory

FrameRing FrameRing::make() {
  FrameRing ring;
  const int descriptor = memfd_create("penstock", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return ring;
  ring.descriptor_ = descriptor;
  // Taken now, since later there is nobody whom a lack of memory could be told.
  if (posix_fallocate(descriptor, 0, static_cast<off_t>(file_bytes())) != 0 ||
      fcntl(descriptor, F_ADD_SEALS, kSeals) != 0 || !ring.map_memory(descriptor))
    return {};
  std::construct_at(reinterpret_cast<RingHead*>(ring.memory_));
  return ring;
}

FrameRing FrameRing::map(int32_t pid, int32_t descriptor) {
  FrameRing ring;
  const std::string name = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  const int own = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return ring;
  if (is_ring(own)) ring.map_memory(own);
  close(own);
  return ring;
}

bool FrameRing::map_memory(int descriptor) {
  void* const room = mmap(nullptr, mapped_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  auto* const begin = static_cast<std::byte*>(room);
  const auto map_at = [&](size_t offset, size_t bytes, size_t from) {
    return mmap(begin + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor,
                static_cast<off_t>(from)) != MAP_FAILED;
  };
  if (!map_at(0, file_bytes(), 0) || !map_at(file_bytes(), kBytes, page_bytes())) {
    munmap(room, mapped_bytes());
    return false;
  }
  memory_ = begin;
  return true;
}

FrameRing::~FrameRing() {
  if (memory_ != nullptr) munmap(memory_, mapped_bytes());
  if (descriptor_ >= 0) close(descriptor_);
}

std::byte* FrameRing::at(uint64_t number) const { return memory_ + page_bytes() + number % kBytes; }

// ---- the writer

uint64_t RingWriter::free_bytes() const {
  const uint64_t unread = written_ - ring_.head().read;
  return unread > FrameRing::kBytes ? 0 : FrameRing::kBytes - unread;
}

bool RingWriter::has_room(uint64_t bytes_behind) const {
  return is_open() && bytes_behind <= FrameRing::kBytes && room_of(bytes_behind) <= free_bytes();
}

bool RingWriter::put(FrameHeader header, std::initializer_list<std::span<const Bytes>> behind) {
  header.bytes = 0;
  for (const auto& parts : behind) {
    for (const Bytes& part : parts) header.bytes += part.size();
  }
  if (!has_room(header.bytes)) return false;
  std::byte* to = ring_.at(written_);
  std::memcpy(to, &header, sizeof header);
  to += sizeof header;
  for (const auto& parts : behind) {
    for (const Bytes& part : parts) {
      if (!part.empty()) std::memcpy(to, part.data(), part.size());
      to += part.size();
    }
  }
  written_ += room_of(header.bytes);
  ring_.head().written = written_;
  return true;
}

bool RingWriter::has_to_ring(bool watched) {
  // All in one order with put(): either this sees who watches, or the one who has ended to sees
  // the frame.
  RingHead& head = ring_.head();
  const bool is_looked_at = head.watchers != 0;
  return (watched || !is_looked_at) && head.is_rung.exchange(1) == 0;
}

// ---- the reader

std::optional<FrameHeader> RingReader::next() const {
  const uint64_t there = ring_.head().written - read_;
  if (there == 0) return std::nullopt;
  FrameHeader header;
  if (there <= FrameRing::kBytes && there >= sizeof header) {
    std::memcpy(&header, ring_.at(read_), sizeof header);
    if (header.bytes <= FrameRing::kBytes && room_of(header.bytes) <= there) return header;
  }
  throw TransportError("has written something into the shared memory that is no frame");
}

void RingReader::pass(const FrameHeader& header) {
  read_ += room_of(header.bytes);
  ring_.head().read = read_;
}

}  // namespace penstock::net
