// Meshes whose connections are encrypted, and what is said where they cannot be.
#include "penstock/net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <array>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/ssl/stream.hpp>
#include <asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "penstock/net/hello.h"
#include "penstock/net/mesh.h"
#include "penstock/net/testing_certificates.h"
#include "penstock/net/testing_nodes.h"
#include "penstock/util/error.h"

namespace penstock::net {
namespace {

using namespace testing_nodes;
using asio::ip::tcp;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_certificates::Authority;
using testing_certificates::CertificateFolder;
using testing_certificates::kDay;
using testing_certificates::Life;

const std::string kToken = "a token that nobody can guess";

TlsChoice in(const CertificateFolder& folder) {
  return {.kind = TlsKind::Certificates, .folder = folder.path()};
}

class MeshTls : public ::testing::TestWithParam<TlsKind> {
 protected:
  MeshOptions options() const {
    MeshOptions options{.ranks = 2, .port = free_port(), .token = kToken};
    options.tls = {.kind = GetParam()};
    if (GetParam() == TlsKind::Certificates) options.tls.folder = folder_.path();
    options.same_host_memory = false;
    return options;
  }

 private:
  Authority authority_{"authority"};
  CertificateFolder folder_{"own", authority_, authority_};
};

std::string name_of(const ::testing::TestParamInfo<TlsKind>& kind) {
  return kind.param == TlsKind::Off      ? "Off"
         : kind.param == TlsKind::Secret ? "Secret"
                                         : "Certificates";
}

INSTANTIATE_TEST_SUITE_P(Mesh, MeshTls,
                         ::testing::Values(TlsKind::Off, TlsKind::Secret, TlsKind::Certificates),
                         name_of);

TEST_P(MeshTls, BringsNotesAndMessagesOfAllSizes) {
  const std::vector<Node> nodes = connected(3, options());
  for (const Node& node : nodes) ASSERT_EQ(node.failure, "");
  Mutex mutex;
  CondVar changed;
  std::string note;
  const auto ignore = [](int, const std::string&) {};
  nodes[0].mesh->start({.note = ignore, .lost = ignore});
  nodes[1].mesh->start({.note = ignore, .lost = ignore});
  nodes[2].mesh->start({.note =
                            [&](int, std::string text) {
                              MutexLock lock(mutex);
                              note = std::move(text);
                              changed.notify_all();
                            },
                        .lost = ignore});
  nodes[1].mesh->tell(2, std::string(300'000, 'n'));
  uint64_t sequence = 0;
  for (const auto& [from, to] : {std::pair{0, 1}, {1, 2}, {2, 0}, {2, 1}}) {
    for (const size_t bytes : {size_t{1}, size_t{16'384}, size_t{16'385}, size_t{5'000'001}}) {
      const auto block = block_of(bytes, ++sequence);
      const auto parts = std::make_shared<Parts>();
      const Tag tag{.run = 1, .channel = 1, .sequence = sequence};
      const auto received = nodes[static_cast<size_t>(to)].mesh->receive(from, tag, into(parts));
      const auto sent =
          nodes[static_cast<size_t>(from)].mesh->send(to, tag, {Bytes(*block)}, block);
      ASSERT_EQ(received->wait(soon()), Transfer::Result::Done);
      ASSERT_EQ(sent->wait(soon()), Transfer::Result::Done);
      EXPECT_EQ(parts->blocks[0], *block);
    }
  }
  MutexLock lock(mutex);
  EXPECT_TRUE(changed.wait_until(mutex, soon(), [&] { return note.size() == 300'000; }));
}

/// Passes all bytes on between a port of its own and another one, and keeps them.
class Listener {
 public:
  explicit Listener(uint16_t port) : thread_([this, port] { run(port); }) {}
  ~Listener() {
    if (thread_.joinable()) thread_.join();
  }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  /// What has passed, when both sides have gone.
  const std::string& heard() {
    thread_.join();
    return heard_;
  }

 private:
  struct Side {
    tcp::socket socket;
    std::array<char, 65'536> bytes = {};
  };

  void run(uint16_t port) {
    comes_.socket = acceptor_.accept();
    asio::error_code refused;
    do {
      goes_.socket = tcp::socket(io_);
      goes_.socket.connect({asio::ip::address_v4::loopback(), port}, refused);
    } while (refused);
    pass(comes_, goes_);
    pass(goes_, comes_);
    io_.run();
  }
  void pass(Side& from, Side& to) {
    from.socket.async_read_some(asio::buffer(from.bytes), [&](const auto& error, size_t count) {
      if (error) {
        asio::error_code ignored;
        to.socket.shutdown(tcp::socket::shutdown_send, ignored);
        return;
      }
      heard_.append(from.bytes.data(), count);
      asio::error_code broken;
      asio::write(to.socket, asio::buffer(from.bytes, count), broken);
      pass(from, to);
    });
  }

  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  Side comes_{tcp::socket(io_)};
  Side goes_{tcp::socket(io_)};
  std::string heard_;
  std::thread thread_;
};

TEST_P(MeshTls, WhoListensHearsNothingInTheClear) {
  MeshOptions first = options();
  MeshOptions second = first;
  Listener listener(first.port);
  second.rank = 1;
  second.port = listener.port();
  std::vector<Node> nodes(2);
  {
    std::jthread other([&] { nodes[1].mesh = Mesh::connect(second); });
    nodes[0].mesh = Mesh::connect(first);
  }
  start_quietly(nodes);
  nodes[0].mesh->tell(1, "a note to somebody");
  const auto block = block_of(1'000'000, 7);
  ASSERT_EQ(pass(nodes, 0, 1, {.run = 1}, block, std::make_shared<Parts>()),
            Transfer::Result::Done);
  {
    std::jthread other([&] { nodes[1].mesh.reset(); });
    nodes[0].mesh.reset();
  }
  const std::string& heard = listener.heard();
  EXPECT_GT(heard.size(), block->size());
  const bool is_off = GetParam() == TlsKind::Off;
  const std::string_view part(reinterpret_cast<const char*>(block->data()), 64);
  EXPECT_EQ(heard.find("a note to somebody") != std::string::npos, is_off);
  EXPECT_EQ(heard.find(part) != std::string::npos, is_off);
  EXPECT_EQ(heard.find(kToken), std::string::npos);
}

struct Refusal {
  std::string comes;    ///< what rank 1 ends with
  std::string listens;  ///< what rank 0 warns of, and ends with
};

/// Ranks 0 and 1, which cannot be joined: both end, and say why.
Refusal refusal(const MeshOptions& listens, MeshOptions comes) {
  Warnings warnings;
  MeshOptions first = listens;
  first.ranks = comes.ranks = 2;
  comes.rank = 1;
  first.port = comes.port = free_port();
  first.patience = milliseconds(1500);
  comes.patience = milliseconds(20'000);
  Refusal refusal;
  std::jthread rank_0([&] {
    try {
      Mesh::connect(first);
      ADD_FAILURE() << "connected";
    } catch (const TimeoutError& error) {
      refusal.listens = error.what();
    }
  });
  const auto began = std::chrono::steady_clock::now();
  try {
    Mesh::connect(comes);
    ADD_FAILURE() << "connected";
  } catch (const TransportError& error) {
    refusal.comes = error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  rank_0.join();
  const size_t reason = refusal.listens.find("refused a connection from");
  EXPECT_NE(reason, std::string::npos) << refusal.listens;
  if (reason == std::string::npos) return refusal;
  EXPECT_THAT(warnings.text(), HasSubstr(refusal.listens.substr(reason)));
  return refusal;
}

MeshOptions with(const TlsChoice& tls, const std::string& token = kToken) {
  return {.token = token, .tls = tls};
}

TEST(MeshTlsRefusal, OneRankWithoutTlsIsSaidOnBothSides) {
  const Authority authority("authority");
  const CertificateFolder folder("own", authority, authority);
  const TlsChoice secret{.kind = TlsKind::Secret};
  Refusal found = refusal(with(secret), with({}));
  EXPECT_THAT(found.comes, HasSubstr("rank 0 has TLS by a secret, and rank 1 has TLS off"));
  EXPECT_THAT(found.listens, HasSubstr("rank 1 has TLS off, and rank 0 has TLS by a secret"));
  found = refusal(with({}), with(in(folder)));
  EXPECT_THAT(found.comes, HasSubstr("rank 0 has TLS off, and rank 1 has TLS by certificates"));
  EXPECT_THAT(found.listens, HasSubstr("rank 1 has TLS by certificates, and rank 0 has TLS off"));
  found = refusal(with(in(folder)), with(secret));
  EXPECT_THAT(found.comes, HasSubstr("all ranks must have the same (PENSTOCK_TLS, or the option"));
}

TEST(MeshTlsRefusal, AnotherSecretIsSaidOnBothSides) {
  const TlsChoice secret{.kind = TlsKind::Secret};
  const Refusal found = refusal(with(secret), with(secret, "another token of many bytes"));
  const auto says =
      HasSubstr("has another secret: PENSTOCK_JOB_TOKEN must be the same on all ranks");
  EXPECT_THAT(found.comes, says);
  EXPECT_THAT(found.listens, says);
}

TEST(MeshTlsRefusal, ACertificateThatIsNoGoodIsSaidOnBothSides) {
  const Authority authority("authority");
  const Authority foreign("somebody else");
  const CertificateFolder good("good", authority, authority);
  const CertificateFolder expired("expired", authority, authority,
                                  {.begin = -2 * kDay, .end = -kDay});
  const CertificateFolder early("early", authority, authority, {.begin = kDay, .end = 2 * kDay});
  const CertificateFolder stranger("stranger", foreign, authority);
  struct Case {
    const CertificateFolder& bad;
    std::string reason;
  };
  for (const Case& one : {Case{expired, "/CN=expired: certificate has expired"},
                          Case{early, "/CN=early: certificate is not yet valid"},
                          Case{stranger, "/CN=stranger: unable to get local issuer certificate"}}) {
    const auto refuses = AllOf(HasSubstr("has a certificate that this rank does not take"),
                               HasSubstr(one.reason), HasSubstr(good.path() + "/ca.crt"));
    const auto is_refused = HasSubstr("does not take this rank's certificate, " + one.bad.path());
    const Refusal of_comer = refusal(with(in(good)), with(in(one.bad)));
    EXPECT_THAT(of_comer.listens, refuses);
    EXPECT_THAT(of_comer.comes, is_refused);
    const Refusal of_listener = refusal(with(in(one.bad)), with(in(good)));
    EXPECT_THAT(of_listener.comes, refuses);
    EXPECT_THAT(of_listener.listens, is_refused);
  }
}

// One who answers in rank 0's place, with a certificate instead of the secret.
TEST(MeshTlsRefusal, WhoHasNoSecretDoesNotComeInByACertificate) {
  const Authority authority("authority");
  const CertificateFolder folder("own", authority, authority);
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  std::jthread impostor([&] {
    Tls tls(in(folder), "");
    tls.context().set_verify_mode(asio::ssl::verify_none);
    asio::ssl::stream<tcp::socket> stream(acceptor.accept(), tls.context());
    const Challenge challenge = fresh_challenge();
    asio::write(stream.next_layer(), asio::buffer(opening(0, TlsKind::Secret)));
    asio::write(stream.next_layer(), asio::buffer(challenge));
    OpeningBytes theirs;
    asio::read(stream.next_layer(), asio::buffer(theirs));
    asio::error_code refused;
    stream.handshake(asio::ssl::stream_base::server, refused);
    EXPECT_TRUE(refused);
  });
  MeshOptions options = with({.kind = TlsKind::Secret});
  options.rank = 1;
  options.ranks = 2;
  options.port = acceptor.local_endpoint().port();
  try {
    Mesh::connect(options);
    ADD_FAILURE() << "connected";
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has another secret"));
  }
}

std::string config_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Tls, FilesThatCannotBeUsedAreNamed) {
  const Authority authority("authority");
  const CertificateFolder folder("own", authority, authority);
  const CertificateFolder other("other", authority, authority);
  const auto refused = [&] { return config_error([&] { make_tls(in(folder), ""); }); };
  EXPECT_EQ(refused(), "accepted");
  std::filesystem::copy_file(other.path() + "/tls.key", folder.path() + "/tls.key",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refused(), AllOf(HasSubstr("own"), HasSubstr("/tls.key' is no file for TLS"),
                               HasSubstr("key values mismatch")));
  std::ofstream(folder.path() + "/tls.crt") << "no certificate";
  EXPECT_THAT(refused(), HasSubstr("/tls.crt' is no file for TLS"));
  std::filesystem::remove(folder.path() + "/ca.crt");
  EXPECT_THAT(refused(), AllOf(HasSubstr("/ca.crt': No such file or directory"),
                               HasSubstr("a folder with tls.crt, tls.key and ca.crt")));
}

TEST(Tls, AKeyWithAPasswordIsRefusedAndNotAskedFor) {
  const Authority authority("authority");
  const CertificateFolder folder("own", authority, authority);
  FILE* const file = std::fopen((folder.path() + "/tls.key").c_str(), "w");
  ASSERT_EQ(PEM_write_PrivateKey(file, testing_certificates::new_key().get(), EVP_aes_128_cbc(),
                                 nullptr, 0, nullptr, const_cast<char*>("password")),
            1);
  std::fclose(file);
  EXPECT_THAT(config_error([&] { make_tls(in(folder), ""); }),
              HasSubstr("a key without a password"));
}

TEST(Tls, ASecretThatCanBeGuessedIsRefused) {
  const auto refused = [](const std::string& token) {
    return config_error([&] { make_tls({.kind = TlsKind::Secret}, token); });
  };
  EXPECT_THAT(refused(""), HasSubstr("PENSTOCK_JOB_TOKEN, the same on all ranks: expected at "
                                     "least 16 bytes that nobody can guess, found 0"));
  EXPECT_THAT(refused(std::string(15, 'x')), HasSubstr("found 15"));
  EXPECT_EQ(refused(std::string(16, 'x')), "accepted");
}

TEST(Tls, AChoiceReadsBack) {
  for (const char* text : {"off", "secret", "/etc/penstock/tls"})
    EXPECT_EQ(to_string(parse_tls(text)), text);
  EXPECT_EQ(parse_tls("secret").kind, TlsKind::Secret);
  EXPECT_EQ(parse_tls("certificates"),
            (TlsChoice{.kind = TlsKind::Certificates, .folder = "certificates"}));
  EXPECT_THAT(config_error([] { parse_tls(""); }), HasSubstr("expected off, secret or a folder"));
}

}  // namespace
}  // namespace penstock::net
