// What ranks say first on a connection. Both begin with an opening, in the clear; the rank that
// listens adds a challenge. Then they encrypt the connection, if they do so, and the rank that has
// come says its hello. All have fixed numbers of bytes, so that a stranger can make nobody wait for
// more or allocate for it.
//
// Trust: the token keeps jobs apart and strangers out. It does not cross the network: a hello
// proves that its sender knows it, for this connection's challenge alone, so that a hello that
// somebody has recorded opens no other connection. Without TLS what follows is neither encrypted
// nor proven, as with the process groups of PyTorch. An opening is not proven either: it is for
// messages alone, and no rank does without the TLS that it was told to use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "penstock/net/tls_choice.h"

namespace penstock::net {

/// 1 at the first release; another number when frames change. 2: challenges. 3: openings.
inline constexpr uint32_t kProtocol = 3;

inline constexpr size_t kOpeningBytes = 24;
using OpeningBytes = std::array<std::byte, kOpeningBytes>;

/// Of this rank.
OpeningBytes opening(int rank, TlsKind tls);
/// Whose it says that it is.
int opening_rank(const OpeningBytes& bytes);
/// Why nothing but the opening can be exchanged, in words that both sides can print; empty: it can.
std::string opening_problem(const OpeningBytes& bytes, int own_rank, TlsKind own_tls);

/// A number that is used once.
using Challenge = std::array<std::byte, 16>;
Challenge fresh_challenge();

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
HelloBytes encode(const Hello& hello, const Challenge& challenge);

/// What is wrong with a hello that came, in words that both sides can print; empty: nothing, and
/// `hello` is filled. The proof of the token comes first, compared in a time that does not depend
/// on it. `expected`: this rank's own.
std::string decode(const HelloBytes& bytes, const Hello& expected, const Challenge& challenge,
                   Hello& hello);

}  // namespace penstock::net
