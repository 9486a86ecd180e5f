#include "penstock/net/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <asio/ssl/error.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

/// Whoever records a connection can try short secrets one by one.
constexpr size_t kLeastSecretBytes = 16;
constexpr std::string_view kKeyName = "penstock";
/// Both with SHA-256, the hash of a key without a certificate; the second where the processor has
/// no instructions for AES.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr const char* kCertificateFile = "tls.crt";
constexpr const char* kKeyFile = "tls.key";
constexpr const char* kAuthorityFile = "ca.crt";

/// Where a context has its key.
int key_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

unsigned copy_key(SSL* ssl, unsigned char* key, unsigned room) {
  const auto* own =
      static_cast<const Hash*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), key_index()));
  if (own == nullptr || room < own->size()) return 0;
  std::copy(own->begin(), own->end(), key);
  return static_cast<unsigned>(own->size());
}

unsigned key_to_offer(SSL* ssl, const char*, char* name, unsigned name_room, unsigned char* key,
                      unsigned room) {
  if (name_room <= kKeyName.size()) return 0;
  *std::copy(kKeyName.begin(), kKeyName.end(), name) = '\0';
  return copy_key(ssl, key, room);
}

unsigned key_of_name(SSL* ssl, const char* name, unsigned char* key, unsigned room) {
  return name == kKeyName ? copy_key(ssl, key, room) : 0;
}

void check_readable(const std::string& path) {
  if (std::ifstream(path).good()) return;
  const std::string why = std::strerror(errno);
  throw ConfigError(fmt::format(
      "cannot read '{}': {}; TLS by certificates takes a folder with tls.crt, tls.key and ca.crt, "
      "TLS by the job's token the word secret",
      printable(path), why));
}

void check_loaded(const std::string& path, const asio::error_code& error) {
  if (error)
    throw ConfigError(fmt::format(
        "'{}' is no file for TLS: {}; expected PEM, and a key without a password that belongs to "
        "the certificate",
        printable(path), error.message()));
}

}  // namespace

Tls::Tls(TlsChoice choice, const std::string& token) : choice_(std::move(choice)) {
  SSL_CTX* const native = context_.native_handle();
  SSL_CTX_set_ciphersuites(native, kCiphers);
  // Every connection is made once.
  SSL_CTX_set_num_tickets(native, 0);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  // Also with a key: who does not have it must not come in by a certificate instead.
  context_.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  if (choice_.kind == TlsKind::Secret)
    use_secret(token);
  else
    use_certificates();
}

void Tls::use_secret(const std::string& token) {
  if (token.size() < kLeastSecretBytes)
    throw ConfigError(fmt::format(
        "TLS by a secret takes PENSTOCK_JOB_TOKEN, the same on all ranks: expected at least {} "
        "bytes that nobody can guess, found {}",
        kLeastSecretBytes, token.size()));
  key_ = keyed_hash(token, "TLS between the ranks of a job");
  SSL_CTX* const native = context_.native_handle();
  SSL_CTX_set_ex_data(native, key_index(), &key_);
  SSL_CTX_set_psk_client_callback(native, key_to_offer);
  SSL_CTX_set_psk_server_callback(native, key_of_name);
}

void Tls::use_certificates() {
  for (const char* name : {kCertificateFile, kKeyFile, kAuthorityFile}) check_readable(file(name));
  // Without it OpenSSL asks at the terminal.
  context_.set_password_callback(
      [](size_t, asio::ssl::context::password_purpose) { return std::string(); });
  asio::error_code error;
  context_.use_certificate_chain_file(file(kCertificateFile), error);
  check_loaded(file(kCertificateFile), error);
  context_.use_private_key_file(file(kKeyFile), asio::ssl::context::pem, error);
  check_loaded(file(kKeyFile), error);
  context_.load_verify_file(file(kAuthorityFile), error);
  check_loaded(file(kAuthorityFile), error);
}

std::string Tls::trouble(const asio::error_code& error, const std::string& refused) const {
  if (error.category() != asio::error::get_ssl_category()) return "closed the connection";
  const std::string reason = error.message();
  if (choice_.kind == TlsKind::Secret)
    return fmt::format(
        "has another secret: PENSTOCK_JOB_TOKEN must be the same on all ranks (TLS: {})", reason);
  if (!refused.empty())
    return fmt::format(
        "has a certificate that this rank does not take, {}: expected one that is valid now and "
        "that the authority of {} has signed",
        refused, printable(file(kAuthorityFile)));
  // An alert came from there.
  if (ERR_GET_REASON(static_cast<unsigned long>(error.value())) >= SSL_AD_REASON_OFFSET)
    return fmt::format(
        "does not take this rank's certificate, {} (TLS: {}): expected one that is valid now and "
        "that its authority has signed",
        printable(file(kCertificateFile)), reason);
  return fmt::format("does not do TLS as this rank does: {}", reason);
}

std::shared_ptr<Tls> make_tls(const TlsChoice& choice, const std::string& token) {
  return choice.kind == TlsKind::Off ? nullptr : std::make_shared<Tls>(choice, token);
}

}  // namespace penstock::net
