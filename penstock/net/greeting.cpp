#include "penstock/net/greeting.h"

#include <fmt/format.h>

#include <array>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cstring>
#include <optional>
#include <utility>

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

/// Runs until what `begin` has begun calls its argument, or until the deadline.
void complete(Stream& stream, const Waiting& waiting, const std::string& whom,
              const std::function<void(const Stream::Done& done)>& begin) {
  std::optional<asio::error_code> ended;
  begin([&](const asio::error_code& error) { ended = error; });
  if (!waiting.until([&] { return ended.has_value(); })) {
    stream.socket().close();
    while (!ended) {
      waiting.io().restart();
      waiting.io().run_one();
    }
    throw TimeoutError(fmt::format("{} did not answer in time", whom));
  }
  if (*ended) throw TransportError(fmt::format("{} {}", whom, stream.trouble(*ended)));
}

/// Reads exactly so many bytes, of what is encrypted if the connection is.
void read_exactly(Stream& stream, asio::mutable_buffer buffer, const Waiting& waiting,
                  const std::string& whom) {
  complete(stream, waiting, whom, [&](const Stream::Done& done) {
    stream.use([&](auto& layer) {
      asio::async_read(layer, buffer,
                       [done](const asio::error_code& error, size_t) { done(error); });
    });
  });
}

}  // namespace

Visitor::Visitor(std::unique_ptr<Stream> stream, const Hello& own, Ready ready)
    : stream_(std::move(stream)),
      timer_(socket().get_executor(), kPatience),
      own_(own),
      ready_(std::move(ready)) {
  asio::error_code error;
  const auto endpoint = socket().remote_endpoint(error);
  from_ = error ? "a connection that is closed"
                : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

void Visitor::start() {
  asio::error_code broken;  // the read below notices it
  const OpeningBytes own = opening(own_.rank, stream_->tls());
  asio::write(socket(),
              std::array<asio::const_buffer, 2>{asio::buffer(own), asio::buffer(challenge_)},
              broken);
  timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->end("it has not said who it is: a stranger, or a rank that is stopped");
  });
  asio::async_read(socket(), asio::buffer(opening_),
                   [self = shared_from_this()](const asio::error_code& error, size_t bytes) {
                     if (!error) return self->on_opening();
                     self->end(
                         fmt::format("it closed the connection after {} bytes, before it "
                                     "said who it is: a stranger, or a rank that has ended",
                                     bytes));
                   });
}

void Visitor::on_opening() {
  std::string problem = opening_problem(opening_, own_.rank, stream_->tls());
  if (!problem.empty()) return end(std::move(problem));
  stream_->async_handshake(Stream::Side::Listens,
                           [self = shared_from_this()](const asio::error_code& error) {
                             if (error)
                               self->end("it " + self->stream_->trouble(error));
                             else
                               self->read_hello();
                           });
}

void Visitor::read_hello() {
  const auto on_hello = [self = shared_from_this()](const asio::error_code& error, size_t) {
    if (error && !Stream::is_forged(error))
      self->end(fmt::format("it said that it is rank {}, and closed the connection",
                            opening_rank(self->opening_)));
    else
      self->end(error ? "it " + self->stream_->trouble(error)
                      : decode(self->bytes_, self->own_, self->challenge_, self->hello_));
  };
  stream_->use([&](auto& layer) { asio::async_read(layer, asio::buffer(bytes_), on_hello); });
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
  socket().close(ignored);
}

void Visitor::refuse(const std::string& reason) {
  asio::error_code ignored;
  const std::string bytes = answer(false, reason);
  socket().non_blocking(true, ignored);
  if (stream_->is_ready())
    stream_->use([&](auto& layer) { layer.write_some(asio::buffer(bytes), ignored); });
  socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket().close(ignored);
}

bool Visitor::accept(const std::string& text) {
  asio::error_code error;
  const std::string bytes = answer(true, text);
  stream_->use([&](auto& layer) { asio::write(layer, asio::buffer(bytes), error); });
  return !error;
}

void say_hello(Stream& stream, const Hello& hello, const Waiting& waiting,
               const std::string& whom) {
  OpeningBytes theirs;
  Challenge challenge;
  complete(stream, waiting, whom, [&](const Stream::Done& done) {
    asio::async_read(
        stream.socket(),
        std::array<asio::mutable_buffer, 2>{asio::buffer(theirs), asio::buffer(challenge)},
        [done](const asio::error_code& error, size_t) { done(error); });
  });
  // What is broken shows when the answer is read, with the reason that the other side gave.
  asio::error_code broken;
  asio::write(stream.socket(), asio::buffer(opening(hello.rank, stream.tls())), broken);
  if (const std::string problem = opening_problem(theirs, hello.rank, stream.tls());
      !problem.empty())
    throw TransportError(fmt::format("{} cannot be talked to: {}", whom, problem));
  complete(stream, waiting, whom,
           [&](const Stream::Done& done) { stream.async_handshake(Stream::Side::Comes, done); });
  const HelloBytes bytes = encode(hello, challenge);
  stream.use([&](auto& layer) { asio::write(layer, asio::buffer(bytes), broken); });
}

std::string read_answer(Stream& stream, const Waiting& waiting, const std::string& whom) {
  AnswerHeader header;
  read_exactly(stream, asio::buffer(&header, sizeof header), waiting, whom);
  if (std::memcmp(header.magic, AnswerHeader{}.magic, sizeof header.magic) != 0 ||
      header.bytes > kMostAnswer)
    refuse_answer(whom);
  std::string text(header.bytes, '\0');
  if (!text.empty()) read_exactly(stream, asio::buffer(text), waiting, whom);
  if (header.accepted == 0)
    throw TransportError(fmt::format("{} refused this rank: {}", whom, printable(text)));
  return text;
}

}  // namespace penstock::net
