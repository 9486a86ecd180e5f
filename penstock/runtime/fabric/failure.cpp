#include "penstock/runtime/fabric/failure.h"

#include "penstock/util/error.h"

namespace penstock::runtime {

namespace {

Failure described(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const ConfigError& error) {
    return {Failure::Kind::Config, error.what()};
  } catch (const ParseError& error) {
    return {Failure::Kind::Config, error.what()};
  } catch (const CheckpointError& error) {
    return {Failure::Kind::Checkpoint, error.what()};
  } catch (const TransportError& error) {
    return {Failure::Kind::Transport, error.what()};
  } catch (const TimeoutError& error) {
    return {Failure::Kind::Timeout, error.what()};
  } catch (const InternalError& error) {
    return {Failure::Kind::Internal, error.what()};
  } catch (const std::exception& error) {
    return {Failure::Kind::Runtime, error.what()};
  } catch (...) {
    return {Failure::Kind::Runtime, "unknown exception"};
  }
}

}  // namespace

Failure describe(const std::exception_ptr& exception) noexcept {
  try {
    return described(exception);
  } catch (...) {  // a text so short that it takes no memory
    return {Failure::Kind::Runtime, "out of memory"};
  }
}

void raise(const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::Config:
      throw ConfigError(failure.text);
    case Failure::Kind::Checkpoint:
      throw CheckpointError(failure.text);
    case Failure::Kind::Transport:
      throw TransportError(failure.text);
    case Failure::Kind::Timeout:
      throw TimeoutError(failure.text);
    case Failure::Kind::Internal:
      throw InternalError(failure.text);
    case Failure::Kind::Runtime:
      break;
  }
  throw RuntimeError(failure.text);
}

}  // namespace penstock::runtime
