// Two ends of a connection in one thread, with and without encryption.
#include "penstock/net/stream.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <asio/io_context.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <optional>
#include <vector>

namespace penstock::net {
namespace {

using asio::ip::tcp;

const std::string kSixteenBytes = "0123456789abcdef";

class StreamTest : public ::testing::Test {
 protected:
  /// `tls`: of both ends; null: none.
  void connect(const std::shared_ptr<Tls>& tls) {
    tcp::acceptor acceptor(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    tcp::socket comes(io_);
    comes.connect(acceptor.local_endpoint());
    comes_ = std::make_unique<Stream>(std::move(comes), tls);
    listens_ = std::make_unique<Stream>(acceptor.accept(), tls);
    int shaken = 0;
    const auto done = [&shaken](const asio::error_code& error) { shaken += error ? 0 : 1; };
    comes_->async_handshake(Stream::Side::Comes, done);
    listens_->async_handshake(Stream::Side::Listens, done);
    io_.restart();
    io_.run();
    ASSERT_EQ(shaken, 2);
    ASSERT_TRUE(comes_->is_ready() && listens_->is_ready());
  }

  /// The bytes of `from` that come out at `to`, written in parts of that many bytes.
  std::vector<char> pass(Stream& from, Stream& to, const std::vector<char>& bytes, size_t part) {
    std::vector<char> received(bytes.size());
    size_t written = 0;
    std::function<void()> write_next = [&] {
      const size_t count = std::min(part, bytes.size() - written);
      from.before_write(count);
      from.use([&](auto& layer) {
        asio::async_write(layer, asio::buffer(bytes.data() + written, count),
                          [&, count](const asio::error_code& error, size_t) {
                            ASSERT_FALSE(error) << error.message();
                            written += count;
                            if (written < bytes.size()) write_next();
                          });
      });
    };
    write_next();
    to.use([&](auto& layer) {
      asio::async_read(layer, asio::buffer(received), [](const asio::error_code& error, size_t) {
        ASSERT_FALSE(error) << error.message();
      });
    });
    io_.restart();
    io_.run();
    return received;
  }

  asio::io_context io_;
  std::unique_ptr<Stream> comes_;
  std::unique_ptr<Stream> listens_;
};

std::vector<char> some_bytes(size_t count) {
  std::vector<char> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  return bytes;
}

TEST_F(StreamTest, BringsTheBytesInBothDirections) {
  for (const TlsKind kind : {TlsKind::Off, TlsKind::Secret}) {
    connect(make_tls({.kind = kind}, kSixteenBytes));
    const std::vector<char> bytes = some_bytes(1'000'003);
    EXPECT_EQ(pass(*comes_, *listens_, bytes, 300'000), bytes);
    EXPECT_EQ(pass(*listens_, *comes_, bytes, 77), bytes);
  }
}

int g_new_keys = 0;

void count_new_keys(int, int, int type, const void* bytes, size_t count, SSL*, void*) {
  if (type != SSL3_RT_HANDSHAKE || count == 0) return;
  if (*static_cast<const unsigned char*>(bytes) == SSL3_MT_KEY_UPDATE) ++g_new_keys;
}

TEST_F(StreamTest, GetsANewKeyAfterSoManyBytes) {
  const std::shared_ptr<Tls> tls = make_tls({.kind = TlsKind::Secret}, kSixteenBytes);
  EXPECT_EQ(tls->bytes_per_key, uint64_t{64} << 30);
  tls->bytes_per_key = 200'000;
  SSL_CTX_set_msg_callback(tls->context().native_handle(), count_new_keys);
  connect(tls);
  g_new_keys = 0;
  const std::vector<char> bytes = some_bytes(1'000'000);
  EXPECT_EQ(pass(*comes_, *listens_, bytes, 100'000), bytes);
  EXPECT_EQ(g_new_keys, 2 * 5);  // said and heard
  // Short ones count as whole records.
  EXPECT_EQ(pass(*comes_, *listens_, some_bytes(130), 5), some_bytes(130));
  EXPECT_EQ(g_new_keys, 2 * 7);
}

TEST_F(StreamTest, BytesThatSomebodyHasChangedAreForged) {
  connect(make_tls({.kind = TlsKind::Secret}, kSixteenBytes));
  // A record of the right form, written by who has no key.
  std::vector<char> record = some_bytes(5 + 100);
  const char header[] = {23, 3, 3, 0, 100};
  std::memcpy(record.data(), header, sizeof header);
  asio::write(comes_->socket(), asio::buffer(record));
  std::optional<asio::error_code> ended;
  std::vector<char> received(10);
  listens_->use([&](auto& layer) {
    asio::async_read(layer, asio::buffer(received),
                     [&](const asio::error_code& error, size_t) { ended = error; });
  });
  io_.restart();
  io_.run();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(Stream::is_forged(*ended)) << ended->message();
  EXPECT_FALSE(Stream::is_forged(asio::error::eof));
}

}  // namespace
}  // namespace penstock::net
