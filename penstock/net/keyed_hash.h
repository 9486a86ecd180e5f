// HMAC-SHA256: shows that somebody knows a secret without saying it (RFC 2104, FIPS 180-4).
//
//   const Hash proof = keyed_hash(token, challenge + message);
//
// Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace penstock::net {

using Hash = std::array<uint8_t, 32>;

Hash keyed_hash(const std::string& key, const std::string& text);

}  // namespace penstock::net
