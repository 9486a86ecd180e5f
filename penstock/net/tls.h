// Keys and rules of a rank's encrypted connections: TLS 1.3, where both sides prove who they are,
// by a key that both have (RFC 8446, 4.2.11) or by certificates. Internal to net.
//
//   const std::shared_ptr<Tls> tls = make_tls(options.tls, options.token);
//   Stream stream(std::move(socket), tls);
//
// A connection gets a new key every 64 GiB, long before AES-GCM's bound (RFC 8446, 5.5).
#pragma once

#include <asio/error_code.hpp>
#include <asio/ssl/context.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "penstock/net/keyed_hash.h"
#include "penstock/net/tls_choice.h"

namespace penstock::net {

/// Not thread-safe; outlives the connections that use it.
class Tls {
 public:
  /// Throws ConfigError naming a file that cannot be used, or what is wrong with the token.
  Tls(TlsChoice choice, const std::string& token);
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  TlsKind kind() const { return choice_.kind; }
  asio::ssl::context& context() { return context_; }
  /// Why the other side cannot be talked to, as the rest of a sentence about it. `refused`: what
  /// this side has found wrong with its certificate; empty: nothing.
  std::string trouble(const asio::error_code& error, const std::string& refused) const;

  uint64_t bytes_per_key = uint64_t{64} << 30;

 private:
  void use_secret(const std::string& token);
  void use_certificates();
  std::string file(const char* name) const { return choice_.folder + "/" + name; }

  TlsChoice choice_;
  Hash key_ = {};  ///< of TlsKind::Secret
  asio::ssl::context context_{asio::ssl::context::tlsv13};
};

/// Null when it is off. Throws as its constructor.
std::shared_ptr<Tls> make_tls(const TlsChoice& choice, const std::string& token);

}  // namespace penstock::net
