// A failure in a form that travels: what kind of error it was, and its text.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace penstock::runtime {

struct Failure {
  enum class Kind : uint8_t { Config, Checkpoint, Transport, Timeout, Runtime, Internal };
  Kind kind = Kind::Runtime;
  std::string text = {};
};

/// What the exception is; anything that is no penstock::Error counts as Runtime. Without memory for
/// its text: "out of memory".
Failure describe(const std::exception_ptr& exception) noexcept;

/// Throws an error of the kind with the text. So every rank, also a thread of the same process, has
/// an exception object of its own.
[[noreturn]] void raise(const Failure& failure);

}  // namespace penstock::runtime
