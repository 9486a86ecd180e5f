#include "penstock/net/tls_choice.h"

#include "penstock/util/error.h"

namespace penstock::net {

TlsChoice parse_tls(const std::string& text) {
  if (text.empty())
    throw ConfigError(
        "how connections are encrypted: expected off, secret or a folder of certificates, found "
        "nothing");
  if (text == "off") return {};
  if (text == "secret") return {.kind = TlsKind::Secret};
  return {.kind = TlsKind::Certificates, .folder = text};
}

std::string to_string(const TlsChoice& choice) {
  if (choice.kind == TlsKind::Off) return "off";
  return choice.kind == TlsKind::Secret ? "secret" : choice.folder;
}

}  // namespace penstock::net
