// What the server answers to which request: the page's files, the stream's state and pictures.
// Knows nothing of sockets.
//
//   const Answer answer = answer_to({.method = "GET", .path = "/state", .host = "localhost"},
//       source, "127.0.0.1");
//   answer.status;  // 200
#pragma once

#include <string_view>

#include "penstock/live/answer.h"
#include "penstock/live/live_source.h"

namespace penstock::live {

/// `host` is the one that the server listens on. Wrong hosts get 403, methods other than GET and
/// HEAD 405, unknown paths 404; `source` is asked only for requests that are allowed, and its
/// exceptions pass through. Every answer has the security headers. The body is that of GET also
/// for HEAD.
Answer answer_to(const Request& request, const LiveSource& source, std::string_view host);

}  // namespace penstock::live
