#include "penstock/live/http_server.h"

#include <fmt/format.h>
#include <microhttpd.h>
#include <strings.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <list>
#include <optional>
#include <utility>

#include "penstock/live/host_check.h"
#include "penstock/live/listening_socket.h"
#include "penstock/util/error.h"
#include "penstock/util/process/log.h"

namespace penstock::live {
namespace {

constexpr unsigned kMostConnections = 64;
// Beyond this many, a new connection closes the one that has asked nothing for longest: neither
// idle clients nor those that send their requests byte by byte keep others out.
constexpr size_t kConnectionsKept = 48;
constexpr unsigned kIdleTimeoutS = 10;
// Request line and headers, and what the library needs to answer.
constexpr size_t kConnectionMemoryBytes = 16384;

using Clock = std::chrono::steady_clock;

struct Connection {
  int fd = -1;
  Clock::time_point asked;  // the latest complete request; the start, before the first
};

std::string_view view_of(const char* text) { return text ? text : std::string_view(); }

// A request with two Host headers means something else to each reader: it has none.
struct HeaderValues {
  const char* name;
  std::optional<std::string_view> value;
  int count = 0;
};
MHD_Result collect_header(void* values_pointer, MHD_ValueKind, const char* name,
                          const char* value) {
  auto& values = *static_cast<HeaderValues*>(values_pointer);
  if (strcasecmp(name, values.name) != 0) return MHD_YES;
  values.value = view_of(value);
  ++values.count;
  return MHD_YES;
}
std::string_view single_header(MHD_Connection* connection, const char* name) {
  HeaderValues values{.name = name, .value = {}};
  MHD_get_connection_values(connection, MHD_HEADER_KIND, collect_header, &values);
  return values.count == 1 ? *values.value : std::string_view();
}

/// A zero byte would end a path early: one that has it written as %00 stays as it is.
size_t unescape_path(void*, MHD_Connection*, char* text) {
  const bool has_zero = std::string_view(text).find("%00") != std::string_view::npos;
  return has_zero ? std::strlen(text) : MHD_http_unescape(text);
}

void free_body(void* body) { std::unique_ptr<std::string>(static_cast<std::string*>(body)); }

MHD_Response* response_of(Answer& answer) {
  if (!answer.lasting_body.empty()) {
    return MHD_create_response_from_buffer(answer.lasting_body.size(),
                                           const_cast<char*>(answer.lasting_body.data()),
                                           MHD_RESPMEM_PERSISTENT);
  }
  auto body = std::make_unique<std::string>(std::move(answer.body));
  MHD_Response* response = MHD_create_response_from_buffer_with_free_callback_cls(
      body->size(), body->data(), free_body, body.get());
  if (response) (void)body.release();  // freed with the response
  return response;
}

MHD_Result send_answer(MHD_Connection* connection, Answer& answer) {
  MHD_Response* response = response_of(answer);
  if (!response) return MHD_NO;
  bool is_complete = true;
  for (const auto& [name, value] : answer.headers)
    is_complete &= MHD_add_response_header(response, name.c_str(), value.c_str()) == MHD_YES;
  const MHD_Result result =
      is_complete ? MHD_queue_response(connection, static_cast<unsigned>(answer.status), response)
                  : MHD_NO;
  MHD_destroy_response(response);
  return result;
}

// Signals are for the program's own threads: one that the server's thread took would interrupt none
// of their waits.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

// Everything but the constants, and what the constructor sets, is touched by the server's thread
// alone.
struct HttpServer::Impl {
  Impl(Answers make, const HttpServerOptions& options);
  ~Impl() { MHD_stop_daemon(daemon); }

  Answer answer(const Request& request) noexcept;
  void opened(MHD_Connection* handle, void** context);
  void closed(void** context);

  static MHD_Result on_request(void* self, MHD_Connection* handle, const char* path,
                               const char* method, const char* version, const char* upload,
                               size_t* upload_size, void** seen);
  static void on_connection(void* self, MHD_Connection* handle, void** context,
                            MHD_ConnectionNotificationCode code);

  const Answers answers;
  const std::string host;
  int port = 0;
  bool is_loopback = false;
  MHD_Daemon* daemon = nullptr;
  std::list<Connection> connections;
  bool has_complained = false;
};

HttpServer::Impl::Impl(Answers make, const HttpServerOptions& options)
    : answers(std::move(make)), host(options.host) {
  ListeningSocket socket(options.host, options.port);
  port = socket.port();
  is_loopback = socket.is_loopback();
  const SignalsBlocked blocked;
  daemon = MHD_start_daemon(
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, nullptr, nullptr, on_request, this,
      MHD_OPTION_LISTEN_SOCKET, socket.fd(), MHD_OPTION_CONNECTION_LIMIT, kMostConnections,
      MHD_OPTION_CONNECTION_TIMEOUT, kIdleTimeoutS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      kConnectionMemoryBytes, MHD_OPTION_UNESCAPE_CALLBACK, unescape_path, nullptr,
      MHD_OPTION_NOTIFY_CONNECTION, on_connection, this, MHD_OPTION_END);
  if (!daemon) throw RuntimeError("the system gave no thread or memory to answer requests");
  socket.release();  // the daemon closes it
}

Answer HttpServer::Impl::answer(const Request& request) noexcept {
  try {
    return answers(request);
  } catch (const std::exception& error) {
    // Once: a page asks several times a second.
    if (!has_complained)
      log_warning(fmt::format("a request could not be answered: {}", error.what()));
    has_complained = true;
    return text_answer(500, "This could not be answered; the log of the program says why.\n");
  }
}

void HttpServer::Impl::opened(MHD_Connection* handle, void** context) {
  if (connections.size() >= kConnectionsKept) {
    auto oldest = connections.begin();
    for (auto it = connections.begin(); it != connections.end(); ++it)
      if (it->fd >= 0 && (oldest->fd < 0 || it->asked < oldest->asked)) oldest = it;
    // The library finds the connection closed by its client, and does the rest.
    if (oldest->fd >= 0) shutdown(oldest->fd, SHUT_RDWR);
    oldest->fd = -1;
  }
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD);
  connections.push_back({info ? info->connect_fd : -1, Clock::now()});
  *context = &connections.back();
}

void HttpServer::Impl::closed(void** context) {
  connections.remove_if([&](const Connection& connection) { return &connection == *context; });
  *context = nullptr;
}

void HttpServer::Impl::on_connection(void* self, MHD_Connection* handle, void** context,
                                     MHD_ConnectionNotificationCode code) {
  Impl& impl = *static_cast<Impl*>(self);
  if (code == MHD_CONNECTION_NOTIFY_STARTED)
    impl.opened(handle, context);
  else
    impl.closed(context);
}

MHD_Result HttpServer::Impl::on_request(void* self, MHD_Connection* handle, const char* path,
                                        const char* method, const char*, const char*, size_t*,
                                        void**) {
  Impl& impl = *static_cast<Impl*>(self);
  const MHD_ConnectionInfo* info =
      MHD_get_connection_info(handle, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  if (info && info->socket_context)
    static_cast<Connection*>(info->socket_context)->asked = Clock::now();
  Answer answer = impl.answer({.method = view_of(method),
                               .path = view_of(path),
                               .host = single_header(handle, MHD_HTTP_HEADER_HOST),
                               .known_tag = single_header(handle, MHD_HTTP_HEADER_IF_NONE_MATCH),
                               .at_loopback = impl.is_loopback});
  return send_answer(handle, answer);
}

HttpServer::HttpServer(Answers answers, const HttpServerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(answers), options)) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->port; }

std::string HttpServer::url() const {
  const std::string& host = impl_->host;
  const std::string shown = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host;
  return "http://" + host_and_port(shown, impl_->port) + "/";
}

}  // namespace penstock::live
