#include "penstock/net/greeting.h"

#include <fmt/format.h>

#include <array>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <optional>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::net {

namespace {

constexpr std::chrono::seconds kPatience{5};

struct AnswerHeader {
  char magic[8] = {'P', 'E', 'N', 'S', 'T', 'O', 'C', 'K'};
  uint32_t accepted = 0;
  uint32_t bytes = 0;
};
constexpr uint32_t kMostAnswer = 16 << 20;

constexpr std::string_view kMark = "PENSTOCK";

std::string as_text(const Challenge& challenge) {
  return std::string(kMark).append(reinterpret_cast<const char*>(challenge.data()),
                                   challenge.size());
}

std::string answer(bool accepted, const std::string& text) {
  const AnswerHeader header{.accepted = accepted ? 1u : 0u,
                            .bytes = static_cast<uint32_t>(text.size())};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + text;
}

[[noreturn]] void refuse_answer(const std::string& whom) {
  throw TransportError(fmt::format("what answers at {} is no rank of Penstock", whom));
}

/// Reads exactly so many bytes, until the deadline.
void read_exactly(asio::ip::tcp::socket& socket, asio::mutable_buffer buffer,
                  const Waiting& waiting, const std::string& whom) {
  std::optional<asio::error_code> ended;
  asio::async_read(socket, buffer, [&](const asio::error_code& error, size_t) { ended = error; });
  if (!waiting.until([&] { return ended.has_value(); })) {
    socket.close();
    while (!ended) {
      waiting.io().restart();
      waiting.io().run_one();
    }
    throw TimeoutError(fmt::format("{} did not answer in time", whom));
  }
  if (*ended) throw TransportError(fmt::format("{} closed the connection", whom));
}

}  // namespace

Visitor::Visitor(asio::ip::tcp::socket socket, const Hello& own, Ready ready)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor(), kPatience),
      own_(own),
      ready_(std::move(ready)) {
  asio::error_code error;
  const auto endpoint = socket_.remote_endpoint(error);
  from_ = error ? "a connection that is closed"
                : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

void Visitor::start() {
  asio::error_code broken;  // the read below notices it
  asio::write(socket_, asio::buffer(as_text(challenge_)), broken);
  timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->end("it has not said who it is");
  });
  asio::async_read(socket_, asio::buffer(bytes_),
                   [self = shared_from_this()](const asio::error_code& error, size_t bytes) {
                     if (error) {
                       self->end(fmt::format("it closed the connection after {} bytes", bytes));
                       return;
                     }
                     self->end(decode(self->bytes_, self->own_, self->challenge_, self->hello_));
                   });
}

void Visitor::end(std::string problem) {
  if (!ready_) return;
  timer_.cancel();
  const Ready ready = std::move(ready_);
  ready_ = {};
  ready(shared_from_this(), std::move(problem));
}

void Visitor::abandon() {
  if (!ready_) return;
  ready_ = {};
  timer_.cancel();
  asio::error_code ignored;
  socket_.close(ignored);
}

void Visitor::refuse(const std::string& reason) {
  asio::error_code ignored;
  const std::string bytes = answer(false, reason);
  socket_.non_blocking(true, ignored);
  socket_.write_some(asio::buffer(bytes), ignored);
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

bool Visitor::accept(const std::string& text) {
  asio::error_code error;
  const std::string bytes = answer(true, text);
  asio::write(socket_, asio::buffer(bytes), error);
  return !error;
}

void say_hello(asio::ip::tcp::socket& socket, const Hello& hello, const Waiting& waiting,
               const std::string& whom) {
  std::string text(kMark.size() + sizeof(Challenge), '\0');
  read_exactly(socket, asio::buffer(text), waiting, whom);
  if (!text.starts_with(kMark)) refuse_answer(whom);
  Challenge challenge;
  std::memcpy(challenge.data(), text.data() + kMark.size(), sizeof challenge);
  asio::error_code error;
  asio::write(socket, asio::buffer(encode(hello, challenge)), error);
  if (error) throw TransportError(fmt::format("{} closed the connection", whom));
}

std::string read_answer(asio::ip::tcp::socket& socket, const Waiting& waiting,
                        const std::string& whom) {
  AnswerHeader header;
  read_exactly(socket, asio::buffer(&header, sizeof header), waiting, whom);
  if (std::memcmp(header.magic, AnswerHeader{}.magic, sizeof header.magic) != 0 ||
      header.bytes > kMostAnswer)
    refuse_answer(whom);
  std::string text(header.bytes, '\0');
  if (!text.empty()) read_exactly(socket, asio::buffer(text), waiting, whom);
  if (header.accepted == 0)
    throw TransportError(fmt::format("{} refused this rank: {}", whom, printable(text)));
  return text;
}

}  // namespace penstock::net
