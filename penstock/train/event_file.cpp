#include "penstock/train/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "penstock/util/error.h"

namespace penstock::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = rest;
  }
  return table;
}

/// A checksum that a record of checksums would not have, too.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c_of(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes(sizeof(Number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(Number));  // of this machine, as x86-64 and ARM64 are
  return bytes;
}

// Fields of protocol buffers: a number with a type of coding, then the value.

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes + static_cast<char>(number);
}

std::string whole(int field, int64_t number) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(static_cast<uint64_t>(number));
}

std::string bytes(int field, std::string_view content) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(content.size()) +
         std::string(content);
}

std::string float64(int field, double number) {
  return varint(static_cast<uint64_t>(field) << 3 | 1) + little_endian(number);
}

std::string float32(int field, float number) {
  return varint(static_cast<uint64_t>(field) << 3 | 5) + little_endian(number);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// No other file of this machine has it.
std::string file_name() {
  static std::atomic<int> count{0};
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {'h', 'o', 's', 't'};
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(seconds_now()),
                     host.data(), ::getpid(), count++);
}

constexpr int kSummary = 5;
constexpr int kSummaryValue = 1;

}  // namespace

uint32_t crc32c_of(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = 0xffffffffU;
  for (const char one : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(one)) & 0xff];
  return crc ^ 0xffffffffU;
}

EventFile::EventFile(const fs::path& folder, int64_t first_step) {
  std::error_code error;
  fs::create_directories(folder, error);
  path_ = folder / file_name();
  file_.open(path_, std::ios::binary);
  if (!file_) {
    throw ConfigError(
        fmt::format("cannot write into the folder of logs '{}': {}", folder.string(),
                    error ? error.message() : std::generic_category().message(errno)));
  }
  write(0, bytes(3, "brain.Event:2"));
  constexpr int kSessionLog = 7;
  constexpr int kStart = 1;
  write(first_step, bytes(kSessionLog, whole(1, kStart)));
}

void EventFile::write(int64_t step, const std::string& content) {
  const std::string event = float64(1, seconds_now()) + whole(2, step) + content;
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  file_ << length << little_endian(masked_crc(length)) << event << little_endian(masked_crc(event))
        << std::flush;
  if (!file_)
    throw RuntimeError(fmt::format("cannot write to '{}': is the disk full?", path_.string()));
}

void EventFile::add(int64_t step, const std::vector<std::pair<std::string, double>>& numbers) {
  std::string summary;
  for (const auto& [name, number] : numbers)
    summary += bytes(kSummaryValue, bytes(1, name) + float32(2, static_cast<float>(number)));
  write(step, bytes(kSummary, summary));
}

void EventFile::add_text(int64_t step, const std::string& name, const std::string& text) {
  constexpr int kString = 7;  // of DataType
  const std::string tensor = whole(1, kString) + bytes(2, "") + bytes(8, text);
  const std::string metadata = bytes(1, bytes(1, "text"));  // the plugin's name
  write(step, bytes(kSummary,
                    bytes(kSummaryValue, bytes(1, name) + bytes(8, tensor) + bytes(9, metadata))));
}

}  // namespace penstock::train
