#include "penstock/net/stream.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <utility>

#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

constexpr size_t kRecordBytes = 16 << 10;

/// "/CN=node02: certificate has expired".
std::string fault_of(X509_STORE_CTX* store) {
  std::array<char, 256> name = {};
  if (X509* const certificate = X509_STORE_CTX_get_current_cert(store))
    X509_NAME_oneline(X509_get_subject_name(certificate), name.data(), name.size());
  return fmt::format("{}: {}", printable(name.data()),
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(store)));
}

}  // namespace

Stream::Stream(asio::ip::tcp::socket socket, std::shared_ptr<Tls> tls)
    : socket_(std::move(socket)), tls_(std::move(tls)) {
  if (!tls_) return;
  is_ready_ = false;
  secure_ = std::make_unique<Secure>(socket_, tls_->context());
  secure_->set_verify_callback([this](bool is_good, asio::ssl::verify_context& context) {
    if (!is_good && refused_.empty()) refused_ = fault_of(context.native_handle());
    return is_good;
  });
}

void Stream::async_handshake(Side side, Done done) {
  if (!secure_) return done({});
  // OpenSSL wants it of one who listens and looks at certificates; one who comes must not have it.
  constexpr unsigned char kContext = 1;
  if (side == Side::Listens)
    SSL_set_session_id_context(secure_->native_handle(), &kContext, sizeof kContext);
  const auto type =
      side == Side::Comes ? asio::ssl::stream_base::client : asio::ssl::stream_base::server;
  secure_->async_handshake(type, [this, done = std::move(done)](const asio::error_code& error) {
    is_ready_ = !error;
    done(error);
  });
}

void Stream::count_for_key(size_t bytes) {
  bytes_of_key_ += std::max(bytes, kRecordBytes);  // a short record counts as much as a full one
  if (bytes_of_key_ < tls_->bytes_per_key) return;
  bytes_of_key_ = 0;
  SSL_key_update(secure_->native_handle(), SSL_KEY_UPDATE_NOT_REQUESTED);
}

}  // namespace penstock::net
