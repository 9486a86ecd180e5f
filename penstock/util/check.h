// PENSTOCK_CHECK(condition, values...) checks invariants of our own code. It throws InternalError
// with file, line, the condition and the values given. Never use it for input: input errors are
// ConfigError or ParseError.
//
//   PENSTOCK_CHECK(stage < num_stages, stage, num_stages);
#pragma once

#include <sstream>

#include "penstock/util/error.h"

namespace penstock::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

template <class... Values>
std::string describe_values(const Values&... values) {
  std::ostringstream out;
  ((out << ' ' << values), ...);
  return out.str();
}

}  // namespace penstock::detail

#define PENSTOCK_CHECK(condition, ...)                                                    \
  do {                                                                                    \
    if (!(condition)) [[unlikely]] {                                                      \
      ::penstock::detail::check_failed(__FILE__, __LINE__, #condition,                    \
                                       ::penstock::detail::describe_values(__VA_ARGS__)); \
    }                                                                                     \
  } while (false)

#ifdef NDEBUG
#define PENSTOCK_DCHECK(condition, ...) ((void)0)
#else
#define PENSTOCK_DCHECK(condition, ...) PENSTOCK_CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
