// What the server answers to which request: the page's files, the stream's state and pictures.
// Knows nothing of sockets.
//
//   const Answer answer = answer_to({.method = "GET", .path = "/state", .host = "localhost"},
//       source, "127.0.0.1");
//   answer.status;  // 200
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/live/live_source.h"

namespace penstock::live {

struct Request {
  std::string_view method;
  std::string_view path;       // without the query
  std::string_view host;       // the header Host; empty if there is none or more than one
  std::string_view known_tag;  // the header If-None-Match
};

struct Answer {
  int status = 200;
  std::string body;
  std::string_view lasting_body;  // instead of body: text that outlives the program's main()
  std::vector<std::pair<std::string, std::string>> headers;
};

/// `host` is the one that the server listens on. Wrong hosts get 403, methods other than GET and
/// HEAD 405, unknown paths 404; `source` is asked only for requests that are allowed, and its
/// exceptions pass through. Every answer has the security headers. The body is that of GET also
/// for HEAD.
Answer answer_to(const Request& request, const LiveSource& source, std::string_view host);

/// A text with the security headers.
Answer text_answer(int status, std::string text);

}  // namespace penstock::live
