// How the connections between the ranks of a job are encrypted, as a user says it.
//
//   const TlsChoice choice = parse_tls("secret");
#pragma once

#include <cstdint>
#include <string>

namespace penstock::net {

enum class TlsKind : uint8_t {
  Off,
  Secret,        ///< the keys come from the job's token
  Certificates,  ///< both sides have one, signed by one authority
};

struct TlsChoice {
  TlsKind kind = TlsKind::Off;
  /// Of certificates: has tls.crt (this rank's, then those between it and the authority's), tls.key
  /// and ca.crt (the authority's), in PEM, as Kubernetes names them.
  std::string folder = {};

  friend bool operator==(const TlsChoice&, const TlsChoice&) = default;
};

/// "off", "secret", or a folder of certificates. Throws ConfigError for an empty text.
TlsChoice parse_tls(const std::string& text);
/// What parse_tls() reads.
std::string to_string(const TlsChoice& choice);

}  // namespace penstock::net
