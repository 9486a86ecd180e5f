// The bytes of a connection between two ranks, as they are or encrypted. Internal to net; runs on
// the thread of its socket.
//
//   Stream stream(std::move(socket), tls);                 // null: not encrypted
//   stream.async_handshake(Stream::Side::Comes, done);     // at once without TLS
//   stream.use([&](auto& layer) { asio::async_write(layer, buffers, handler); });
#pragma once

#include <algorithm>
#include <asio/ip/tcp.hpp>
#include <asio/ssl/stream.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/net/tls.h"

namespace penstock::net {

class Stream {
 public:
  enum class Side : uint8_t { Comes, Listens };
  using Done = std::function<void(const asio::error_code& error)>;

  explicit Stream(asio::ip::tcp::socket socket, std::shared_ptr<Tls> tls = nullptr);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// For what concerns the connection and not its bytes.
  asio::ip::tcp::socket& socket() { return socket_; }
  TlsKind tls() const { return tls_ ? tls_->kind() : TlsKind::Off; }
  /// The stream must live until `done` is called.
  void async_handshake(Side side, Done done);
  /// Whether bytes can be exchanged.
  bool is_ready() const { return is_ready_; }
  /// Why the other side cannot be talked to, as the rest of a sentence about it.
  std::string trouble(const asio::error_code& error) const {
    return tls_ ? tls_->trouble(error, refused_) : "closed the connection";
  }

  /// Whether an error of reading says that the bytes are not the other side's.
  static bool is_forged(const asio::error_code& error) {
    return error.category() == asio::error::get_ssl_category();
  }

  /// Calls `act` with what asio reads and writes.
  template <class Act>
  auto use(const Act& act) {
    return secure_ ? act(*secure_) : act(socket_);
  }
  /// To be called before each write, when the one before it has ended.
  void before_write(size_t bytes) {
    if (secure_) count_for_key(bytes);
  }

 private:
  using Secure = asio::ssl::stream<asio::ip::tcp::socket&>;

  void count_for_key(size_t bytes);

  asio::ip::tcp::socket socket_;
  std::shared_ptr<Tls> tls_;
  std::unique_ptr<Secure> secure_;
  bool is_ready_ = true;
  uint64_t bytes_of_key_ = 0;
  std::string refused_;  ///< what is wrong with the other side's certificate
};

}  // namespace penstock::net
