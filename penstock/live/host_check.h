// Which Host headers are answered. A hostile web page can give its own name the address 127.0.0.1
// ("DNS rebinding") and then read this server as if it were its own site; its requests still carry
// that name in Host.
//
//   is_allowed_host("localhost:8080", "127.0.0.1")  // true
//   is_allowed_host("evil.example", "127.0.0.1")    // false
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace penstock::live {

/// `header` names localhost, 127.0.0.1, [::1] or `host`, with any port (a tunnel changes it). If
/// `host` stands for all addresses (0.0.0.0 or ::), also this machine's name and any address
/// written in numbers: those cannot be rebound.
bool is_allowed_host(std::string_view header, std::string_view host);

/// 0.0.0.0 or ::, which listen on all addresses.
bool is_any_address(std::string_view host);

/// Such as example.org:80 or [::1]:80.
std::string host_and_port(std::string_view host, int port);

}  // namespace penstock::live
