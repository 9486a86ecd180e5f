#include "penstock/live/host_check.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace penstock::live {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_address(int family, std::string_view text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return inet_pton(family, std::string(text).c_str(), bytes.data()) == 1;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Takes the port off, if there is one; empty if it is not a number.
std::string_view without_port(std::string_view header) {
  const size_t bracket = header.rfind(']');
  const size_t colon = header.find(':', bracket == header.npos ? 0 : bracket);
  if (colon == header.npos) return header;
  const std::string_view port = header.substr(colon + 1);
  const bool is_number = port.size() <= 5 && std::all_of(port.begin(), port.end(), [](char c) {
                           return c >= '0' && c <= '9';
                         });
  return is_number ? header.substr(0, colon) : "";
}

}  // namespace

bool is_any_address(std::string_view host) { return host == "0.0.0.0" || host == "::"; }

bool is_allowed_host(std::string_view header, std::string_view host) {
  std::string_view name = without_port(header);
  const bool in_brackets = name.size() > 2 && name.front() == '[' && name.back() == ']';
  if (in_brackets) name = name.substr(1, name.size() - 2);
  if (name.empty() || name.size() > 255) return false;
  if (in_brackets != (name.find(':') != name.npos)) return false;
  if (same_name(name, "localhost") || name == "127.0.0.1" || name == "::1") return true;
  if (!is_any_address(host)) return same_name(name, host);
  return is_address(in_brackets ? AF_INET6 : AF_INET, name) || same_name(name, machine_name());
}

std::string host_and_port(std::string_view host, int port) {
  return host.find(':') == host.npos ? fmt::format("{}:{}", host, port)
                                     : fmt::format("[{}]:{}", host, port);
}

}  // namespace penstock::live
