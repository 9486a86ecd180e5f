// Matchers of errors, for tests.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "penstock/util/error.h"

namespace penstock::model {

/// Of a call that throws a ConfigError with this text in its message.
inline auto config_error(const std::string& part) {
  return ::testing::Throws<ConfigError>(
      ::testing::Property(&ConfigError::what, ::testing::HasSubstr(part)));
}

}  // namespace penstock::model
