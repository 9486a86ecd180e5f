// What a server is asked, and what it answers. Knows nothing of sockets.
//
//   if (request.path == "/metrics") return text_answer(200, text);
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::live {

struct Request {
  std::string_view method;
  std::string_view path;       // without the query
  std::string_view host;       // the header Host; empty if there is none or more than one
  std::string_view known_tag;  // the header If-None-Match
  bool at_loopback = false;    // only this machine can reach the address that was asked
};

struct Answer {
  int status = 200;
  std::string body;
  std::string_view lasting_body;  // instead of body: text that outlives the program's main()
  std::vector<std::pair<std::string, std::string>> headers;
};

/// Of this type, with the security headers; empty: without one.
Answer typed_answer(int status, std::string_view type);
/// A text with the security headers.
Answer text_answer(int status, std::string text);
/// Why such a request is answered by nobody: 403 for a Host that is not `host`'s (empty: any), 405
/// for methods other than GET and HEAD. Status 200: it may be.
Answer checked(const Request& request, std::string_view host);

}  // namespace penstock::live
