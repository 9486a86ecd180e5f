// Every failure that input or the outside world can cause is one of these types. Programmer errors
// are InternalError, thrown by PENSTOCK_CHECK (check.h). An expected "no" (an infeasible plan, a
// violated rule) is a value, never an exception.
//
//   throw ParseError("s.txt", 3, "expected an action such as 2F0, found '2Q0'");
//
// The command line maps them to exit codes: 2 for ConfigError, ParseError and CheckpointError, 3
// for the others.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace penstock {

/// Base of all errors that Penstock throws on purpose. The message says what was found, what was
/// expected and where.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option, a combination of options or a value is unusable.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A file or text is malformed. The message starts with `place:line:` (or `place:` when line is 0).
class ParseError : public Error {
 public:
  ParseError(std::string_view place, int64_t line, std::string_view message);
};

/// A checkpoint is missing, damaged or belongs to another model.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A peer or a channel failed.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// A wait passed its deadline. The message reports which worker waits for what.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// Computation failed at run time (a tensor library error, a full disk); names stage, micro-batch
/// and action.
class RuntimeError : public Error {
 public:
  using Error::Error;
};

/// The answer no to valid input, where the caller needs a yes to go on (exit code 1).
class NoAnswer : public Error {
 public:
  using Error::Error;
};

/// A broken invariant of Penstock itself; never reachable from input.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace penstock
