#include "penstock/net/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>

#include "penstock/net/keyed_hash.h"
#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

constexpr size_t kTokenBytes = 64;
constexpr size_t kVersionBytes = 32;
constexpr std::string_view kMagic = "PENSTOCK";
/// Also tells the byte order.
constexpr uint32_t kProtocolWord = 0x50530000 + kProtocol;

struct OpeningLayout {
  char magic[8];
  uint32_t protocol;
  int32_t rank;
  uint8_t tls;
  char rest[7];
};
static_assert(sizeof(OpeningLayout) == kOpeningBytes);

struct Layout {
  char magic[8];
  uint8_t proof[sizeof(Hash)];
  char spare[36];
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

/// That the sender of the rest of these bytes knows the token.
Hash proof_of(Layout layout, const std::string& token, const Challenge& challenge) {
  std::fill(std::begin(layout.proof), std::end(layout.proof), uint8_t{0});
  std::string text(reinterpret_cast<const char*>(challenge.data()), challenge.size());
  text.append(reinterpret_cast<const char*>(&layout), sizeof layout);
  return keyed_hash(token, text);
}

std::string text_of(const char* from, size_t most) {
  return {from, static_cast<size_t>(std::find(from, from + most, '\0') - from)};
}

std::string_view in_words(TlsKind tls) {
  if (tls == TlsKind::Off) return "TLS off";
  return tls == TlsKind::Secret ? "TLS by a secret" : "TLS by certificates";
}

}  // namespace

OpeningBytes opening(int rank, TlsKind tls) {
  OpeningLayout layout = {};
  copy(kMagic, layout.magic, sizeof layout.magic, "the mark");
  layout.protocol = kProtocolWord;
  layout.rank = rank;
  layout.tls = static_cast<uint8_t>(tls);
  OpeningBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

int opening_rank(const OpeningBytes& bytes) {
  OpeningLayout layout = {};
  std::memcpy(&layout, bytes.data(), sizeof layout);
  return layout.rank;
}

std::string opening_problem(const OpeningBytes& bytes, int own_rank, TlsKind own_tls) {
  OpeningLayout layout = {};
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (std::string_view(layout.magic, sizeof layout.magic) != kMagic) return "no rank of Penstock";
  if (layout.protocol != kProtocolWord) {
    return fmt::format("it speaks protocol {:x}, and rank {} protocol {:x}", layout.protocol,
                       own_rank, kProtocolWord);
  }
  const auto tls = static_cast<TlsKind>(layout.tls);
  if (tls == own_tls) return {};
  return fmt::format(
      "rank {} has {}, and rank {} has {}: all ranks must have the same (PENSTOCK_TLS, or the "
      "option tls)",
      layout.rank, in_words(tls), own_rank, in_words(own_tls));
}

Challenge fresh_challenge() {
  std::random_device random;  // of the system
  Challenge challenge;
  for (std::byte& byte : challenge) byte = static_cast<std::byte>(random());
  return challenge;
}

HelloBytes encode(const Hello& hello, const Challenge& challenge) {
  Layout layout = {};
  copy(kMagic, layout.magic, sizeof layout.magic, "the mark");
  if (hello.token.size() > kTokenBytes)
    throw ConfigError(fmt::format("the job's token may have {} bytes, found {}", kTokenBytes,
                                  hello.token.size()));
  copy(hello.version, layout.version, kVersionBytes, "the version");
  layout.rank = hello.rank;
  layout.ranks = hello.ranks;
  layout.port = hello.port;
  const Hash proof = proof_of(layout, hello.token, challenge);
  std::copy(proof.begin(), proof.end(), layout.proof);
  HelloBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

std::string decode(const HelloBytes& bytes, const Hello& expected, const Challenge& challenge,
                   Hello& hello) {
  Layout layout = {};
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (std::string_view(layout.magic, sizeof layout.magic) != kMagic) return "no rank of Penstock";
  const Hash proof = proof_of(layout, expected.token, challenge);
  unsigned different = 0;
  for (size_t i = 0; i < proof.size(); ++i) different |= layout.proof[i] ^ proof[i];
  if (different != 0)
    return "the token is that of another job, or PENSTOCK_JOB_TOKEN is not the same on all ranks";
  hello = {.token = expected.token,
           .version = text_of(layout.version, kVersionBytes),
           .rank = layout.rank,
           .ranks = layout.ranks,
           .port = layout.port};
  if (hello.version != expected.version) {
    return fmt::format("rank {} runs Penstock {}, rank {} runs Penstock {}", hello.rank,
                       printable(hello.version), expected.rank, expected.version);
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
