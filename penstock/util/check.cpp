#include "penstock/util/check.h"

#include <fmt/format.h>

namespace penstock::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  throw InternalError(fmt::format("{}:{}: internal check failed: {}{}{}", file, line, condition,
                                  values.empty() ? "" : ", values", values));
}

}  // namespace penstock::detail
