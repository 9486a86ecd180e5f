#include "penstock/net/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

constexpr size_t kTokenBytes = 64;
constexpr size_t kVersionBytes = 32;
constexpr std::string_view kMagic = "PENSTOCK";
/// Also tells the byte order.
constexpr uint32_t kProtocolWord = 0x50530000 + kProtocol;

struct Layout {
  char magic[8];
  char token[kTokenBytes];
  uint32_t protocol;
  int32_t rank;
  int32_t ranks;
  uint16_t port;
  uint16_t unused;
  char version[kVersionBytes];
  char rest[8];
};
static_assert(sizeof(Layout) == kHelloBytes);

void copy(std::string_view text, char* to, size_t most, const char* what) {
  if (text.size() > most)
    throw ConfigError(fmt::format("{} may have {} bytes, found {}", what, most, text.size()));
  std::copy(text.begin(), text.end(), to);
}

std::string text_of(const char* from, size_t most) {
  return {from, static_cast<size_t>(std::find(from, from + most, '\0') - from)};
}

}  // namespace

HelloBytes encode(const Hello& hello) {
  Layout layout = {};
  copy(kMagic, layout.magic, sizeof layout.magic, "the mark");
  copy(hello.token, layout.token, kTokenBytes, "the job's token");
  copy(hello.version, layout.version, kVersionBytes, "the version");
  layout.protocol = kProtocolWord;
  layout.rank = hello.rank;
  layout.ranks = hello.ranks;
  layout.port = hello.port;
  HelloBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

std::string decode(const HelloBytes& bytes, const Hello& expected, Hello& hello) {
  Layout layout = {};
  std::memcpy(&layout, bytes.data(), sizeof layout);
  const HelloBytes own_bytes = encode(expected);
  Layout own = {};
  std::memcpy(&own, own_bytes.data(), sizeof own);
  if (std::string_view(layout.magic, sizeof layout.magic) != kMagic) return "no rank of Penstock";
  unsigned different = 0;
  for (size_t i = 0; i < kTokenBytes; ++i)
    different |= static_cast<unsigned char>(layout.token[i] ^ own.token[i]);
  if (different != 0) return "the token is that of another job (PENSTOCK_JOB_TOKEN)";
  hello = {.token = expected.token,
           .version = text_of(layout.version, kVersionBytes),
           .rank = layout.rank,
           .ranks = layout.ranks,
           .port = layout.port};
  if (hello.version != expected.version || layout.protocol != own.protocol) {
    return fmt::format(
        "rank {} runs Penstock {} (protocol {:x}), rank {} runs Penstock {} (protocol {:x})",
        hello.rank, printable(hello.version), layout.protocol, expected.rank, expected.version,
        own.protocol);
  }
  if (hello.ranks != expected.ranks) {
    return fmt::format("rank {} was told that the job has {} ranks, rank {} that it has {}",
                       hello.rank, hello.ranks, expected.rank, expected.ranks);
  }
  if (hello.rank < 0 || hello.rank >= hello.ranks)
    return fmt::format("its rank is {}, expected 0 to {}", hello.rank, hello.ranks - 1);
  return {};
}

}  // namespace penstock::net
