// How a worker ends because another one has failed. Internal to runtime.
#pragma once

#include <exception>

namespace penstock::runtime {

/// This worker ends without an error of its own. An std::exception, because autograd's engine lets
/// only those through.
struct Aborted : std::exception {
  const char* what() const noexcept override { return "another worker has failed"; }
};

}  // namespace penstock::runtime
