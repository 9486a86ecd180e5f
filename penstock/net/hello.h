// What a rank says first on a connection to another one, and the answer. A fixed number of bytes,
// so that a stranger can make nobody wait for more or allocate for it.
//
// Trust: as with the process groups of PyTorch, the network of a job is trusted. The token keeps
// jobs apart and strangers out; nothing is encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock::net {

/// 1 at the first release; another number when frames change.
inline constexpr uint32_t kProtocol = 1;

struct Hello {
  std::string token = {};    ///< of the job; at most 64 bytes
  std::string version = {};  ///< of the program; at most 32 bytes
  int32_t rank = 0;
  int32_t ranks = 1;
  uint16_t port = 0;  ///< where this rank listens; 0: nowhere
};

inline constexpr size_t kHelloBytes = 128;
using HelloBytes = std::array<std::byte, kHelloBytes>;

/// Throws ConfigError when token or version are too long.
HelloBytes encode(const Hello& hello);

/// What is wrong with a hello that came, in words that both sides can print; empty: nothing, and
/// `hello` is filled. The token is compared first, in a time that does not depend on it.
/// `expected`: this rank's own.
std::string decode(const HelloBytes& bytes, const Hello& expected, Hello& hello);

}  // namespace penstock::net
