// Real sockets on loopback.
#include "penstock/live/live_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <list>
#include <optional>
#include <stdexcept>
#include <thread>

#include "penstock/live/listening_socket.h"
#include "penstock/live/testing_source.h"
#include "penstock/util/error.h"
#include "penstock/util/process/log.h"

namespace penstock::live {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("no connection");
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// As much as the server takes; false if it closes before that.
  bool send_text(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  /// All until the server closes.
  std::string rest() {
    std::string text;
    char buffer[4096];
    ssize_t size = 0;
    while ((size = recv(fd_, buffer, sizeof buffer, 0)) > 0) text.append(buffer, size);
    return text;
  }
  void shrink_receive_buffer() {
    const int bytes = 2048;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }

 private:
  int fd_;
};

std::string ask(int port, const std::string& text) {
  Client client(port);
  client.send_text(text);
  return client.rest();
}

std::string request(const std::string& line, const std::string& headers = "Host: localhost\r\n") {
  return line + " HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n";
}

class LiveServerTest : public testing::Test {
 protected:
  std::string get(const std::string& path) { return ask(server->port(), request("GET " + path)); }

  FixedSource source;
  std::optional<LiveServer> server{std::in_place, source};
};

TEST_F(LiveServerTest, AnswersTheRoutesAndTheSecurityHeaders) {
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(server->port()) + "/");
  EXPECT_THAT(get("/"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("<!doctype html>"),
                              HasSubstr("Content-Security-Policy: default-src 'self'"),
                              HasSubstr("X-Content-Type-Options: nosniff")));
  EXPECT_THAT(get("/state?x=1"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("\"a stream\"")));
  EXPECT_THAT(get("/input"),
              AllOf(HasSubstr("Penstock-Width: 2"), testing::EndsWith("\1\2\3\4\5\6")));
  EXPECT_THAT(get("/output"), StartsWith("HTTP/1.1 204 "));
  EXPECT_THAT(get("/none"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get("/../../etc/passwd"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get("/%2e%2e/etc/passwd"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(LiveServerTest, SendsAKnownPictureOnce) {
  EXPECT_THAT(
      ask(server->port(), request("GET /input", "Host: localhost\r\nIf-None-Match: \"7\"\r\n")),
      StartsWith("HTTP/1.1 304 "));
}

TEST_F(LiveServerTest, HeadHasTheLengthWithoutTheBody) {
  const std::string answer = ask(server->port(), request("HEAD /state"));
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 21"),
                            Not(HasSubstr("a stream"))));
}

TEST_F(LiveServerTest, AZeroByteDoesNotEndAPath) {
  for (const char* path : {"/%00", "/state%00", "/state%00.txt"})
    EXPECT_THAT(get(path), StartsWith("HTTP/1.1 404 ")) << path;
  EXPECT_EQ(source.asked, 0);
}

TEST_F(LiveServerTest, RefusesOtherHosts) {
  for (const char* headers : {"Host: evil.example\r\n", "", "Host: localhost\r\nHost: evil\r\n",
                              "Host: evil\r\nhost: localhost\r\n", "Host:\r\n"})
    EXPECT_THAT(ask(server->port(), request("GET /state", headers)), StartsWith("HTTP/1.1 40"))
        << headers;
  EXPECT_THAT(ask(server->port(), request("GET /state", "Host: evil.example:80\r\n")),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(source.asked, 0);
}

TEST(ListeningSocket, KnowsALoopbackAddressHoweverItIsWritten) {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "0x7f000001"})
    EXPECT_TRUE(ListeningSocket(host, 0).is_loopback()) << host;
  EXPECT_FALSE(ListeningSocket("0.0.0.0", 0).is_loopback());
}

TEST_F(LiveServerTest, RefusesOtherMethods) {
  EXPECT_THAT(ask(server->port(),
                  request("POST /state", "Host: localhost\r\nContent-Length: 3\r\n") + "abc"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD")));
  EXPECT_THAT(ask(server->port(), request("OPTIONS /")), StartsWith("HTTP/1.1 405 "));
  EXPECT_EQ(source.asked, 0);
}

TEST_F(LiveServerTest, SurvivesGarbage) {
  const std::string zeros(5000, '\0'), high(5000, '\xff');
  for (const std::string& text :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("\x16\x03\x01\x02"), zeros,
        high, std::string("GET /state HTTP/9.9\r\n\r\n"),
        request("POST /", "Host: localhost\r\nTransfer-Encoding: chunked\r\n") + "zzzz\r\n",
        request("POST /", "Host: localhost\r\nContent-Length: 99999999999999999999\r\n")}) {
    Client client(server->port());
    client.send_text(text);
  }
  EXPECT_THAT(get("/state"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(LiveServerTest, RefusesHugeHeaders) {
  const std::string line = "A: " + std::string(1000, 'x') + "\r\n";
  std::string headers = "Host: localhost\r\n";
  for (int k = 0; k < 1000; ++k) headers += line;
  EXPECT_THAT(ask(server->port(), request("GET /state", headers)),
              Not(StartsWith("HTTP/1.1 200 ")));
  EXPECT_THAT(ask(server->port(), request("GET /" + std::string(1000000, 'x'))),
              Not(StartsWith("HTTP/1.1 200 ")));
  EXPECT_EQ(source.asked, 0);
  EXPECT_THAT(get("/state"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(LiveServerTest, IdleClientsDoNotKeepOthersOut) {
  std::list<Client> idle;
  for (int k = 0; k < 300; ++k) {
    idle.emplace_back(server->port());
    if (k % 2) idle.back().send_text("GET /state HTTP/1.1\r\nHost: loc");
  }
  const auto begin = Clock::now();
  EXPECT_THAT(get("/state"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(seconds_since(begin), 5);
}

TEST_F(LiveServerTest, AClientThatDoesNotReadMakesNoOtherWait) {
  source.state_text = "\"" + std::string(50'000'000, 'x') + "\"";
  Client slow(server->port());
  slow.shrink_receive_buffer();
  slow.send_text(request("GET /state"));
  const auto begin = Clock::now();
  EXPECT_THAT(get("/input"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(seconds_since(begin), 5);
}

TEST_F(LiveServerTest, StopsAtOnceWithClientsConnected) {
  Client idle(server->port()), partial(server->port()), slow(server->port());
  partial.send_text("GET /sta");
  source.state_text = std::string(50'000'000, 'x');
  slow.shrink_receive_buffer();
  slow.send_text(request("GET /state"));
  EXPECT_THAT(get("/input"), StartsWith("HTTP/1.1 200 "));
  const auto begin = Clock::now();
  server.reset();
  EXPECT_LT(seconds_since(begin), 2);
  EXPECT_EQ(partial.rest(), "");
}

TEST_F(LiveServerTest, ItsPortIsFreeAfterwards) {
  const int port = server->port();
  EXPECT_THAT(get("/state"), StartsWith("HTTP/1.1 200 "));
  server.reset();
  EXPECT_EQ(LiveServer(source, {.port = port}).port(), port);
}

TEST_F(LiveServerTest, SaysSoIfThePortIsInUse) {
  try {
    const LiveServer second(source, {.port = server->port()});
    FAIL() << "two servers have one port";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("127.0.0.1:" + std::to_string(server->port())),
                                    HasSubstr("choose another port")));
  }
}

TEST_F(LiveServerTest, RefusesHostsAndPortsThatCannotBe) {
  const auto message_of = [&](const LiveServerOptions& options) -> std::string {
    try {
      const LiveServer other(source, options);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of({.port = -1}), HasSubstr("found -1"));
  EXPECT_THAT(message_of({.port = 65536}), HasSubstr("found 65536"));
  EXPECT_THAT(message_of({.host = ""}), HasSubstr("found none"));
  EXPECT_THAT(message_of({.host = "not a host"}), HasSubstr("'not a host'"));
  EXPECT_THAT(message_of({.host = "192.0.2.1"}), HasSubstr("does not have that address"));
}

TEST_F(LiveServerTest, TheUrlOfAllAddressesIsThatOfThisMachine) {
  const LiveServer all(source, {.host = "0.0.0.0"});
  EXPECT_THAT(all.url(), StartsWith("http://127.0.0.1:"));
  EXPECT_THAT(ask(all.port(), request("GET /state", "Host: 10.0.0.1\r\n")),
              StartsWith("HTTP/1.1 200 "));
}

class FailingSource : public FixedSource {
 public:
  std::string state() const override { throw std::runtime_error("a secret"); }
};

TEST(LiveServer, AFailureOfTheSourceIsLoggedAndNotShown) {
  int warnings = 0;
  set_log_sink([&](LogLevel, std::string_view) { ++warnings; });
  {
    const FailingSource source;
    const LiveServer server(source);
    for (int k = 0; k < 3; ++k) {
      EXPECT_THAT(ask(server.port(), request("GET /state")),
                  AllOf(StartsWith("HTTP/1.1 500 "), Not(HasSubstr("secret"))));
    }
  }
  set_log_sink({});
  EXPECT_EQ(warnings, 1);
}

}  // namespace
}  // namespace penstock::live
