#include "penstock/live/answer.h"

#include <array>

#include "penstock/live/host_check.h"

namespace penstock::live {
namespace {

// What comes from here may use nothing from elsewhere, and no other site may show or read it.
constexpr std::array<std::pair<const char*, const char*>, 6> kSecurityHeaders{{
    {"Content-Security-Policy",
     "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
}};

}  // namespace

Answer typed_answer(int status, std::string_view type) {
  Answer answer;
  answer.status = status;
  for (const auto& [name, value] : kSecurityHeaders) answer.headers.emplace_back(name, value);
  if (!type.empty()) answer.headers.emplace_back("Content-Type", type);
  return answer;
}

Answer text_answer(int status, std::string text) {
  Answer answer = typed_answer(status, "text/plain; charset=utf-8");
  answer.body = std::move(text);
  return answer;
}

Answer checked(const Request& request, std::string_view host) {
  if (!host.empty() && !is_allowed_host(request.host, host)) {
    return text_answer(403, "This server answers only to its own names, such as localhost.\n");
  }
  if (request.method == "GET" || request.method == "HEAD") return {};
  Answer answer = text_answer(405, "Only GET and HEAD are answered.\n");
  answer.headers.emplace_back("Allow", "GET, HEAD");
  return answer;
}

}  // namespace penstock::live
