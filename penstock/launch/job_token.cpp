#include "penstock/launch/job_token.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "penstock/util/error.h"

namespace penstock::launch {

std::string make_job_token() {
  std::array<uint8_t, 16> bytes{};
  ssize_t size = 0;
  do {
    size = getrandom(bytes.data(), bytes.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(bytes.size()))
    throw RuntimeError(fmt::format("the system has no random bytes: {}", std::strerror(errno)));
  std::string token;
  for (const uint8_t byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

}  // namespace penstock::launch
