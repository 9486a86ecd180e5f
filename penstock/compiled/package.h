// A compiled function: a package of AOTInductor, as compile_piece.py makes it, loaded into this
// process. Internal to compiled.
//
//   const Package forward("forward.pt2", /*callers=*/2);
//   model::Tensors results = forward.run(arguments);
#pragma once

#include <filesystem>
#include <memory>

#include "penstock/model/layer.h"

namespace penstock::compiled {

/// Immutable; thread-safe.
class Package {
 public:
  /// `callers`: threads that run it at the same time; more of them wait for each other. Throws
  /// RuntimeError for a file that is no package of this libtorch and machine.
  Package(const std::filesystem::path& file, int callers);
  ~Package();
  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  /// Sizes, strides and types are those that it was compiled for, which is not checked. Without
  /// autograd.
  model::Tensors run(const model::Tensors& arguments) const;

  /// Whether this libtorch can load packages: since 2.9.
  static bool can_load();

 private:
  struct Loader;
  std::unique_ptr<Loader> loader_;
};

}  // namespace penstock::compiled
