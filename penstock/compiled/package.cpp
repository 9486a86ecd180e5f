#include "penstock/compiled/package.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>

#include "penstock/util/error.h"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

namespace penstock::compiled {

struct Package::Loader {
  Loader(const std::string& file, int callers)
      : packages(file, "model", /*run_single_threaded=*/false, static_cast<size_t>(callers)) {}
  torch::inductor::AOTIModelPackageLoader packages;
};

Package::Package(const std::filesystem::path& file, int callers) {
  try {
    loader_ = std::make_unique<Loader>(file.string(), callers);
  } catch (const c10::Error& error) {
    throw RuntimeError(
        fmt::format("{} cannot be loaded: {}", file.string(), error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw RuntimeError(fmt::format("{} cannot be loaded: {}", file.string(), error.what()));
  }
}

Package::~Package() = default;

model::Tensors Package::run(const model::Tensors& arguments) const {
  const at::NoGradGuard no_grad;
  return loader_->packages.run(arguments);
}

bool Package::can_load() { return true; }

}  // namespace penstock::compiled

#else

namespace penstock::compiled {

struct Package::Loader {};

Package::Package(const std::filesystem::path& file, int) {
  throw RuntimeError(fmt::format("{}: this libtorch loads no packages", file.string()));
}

Package::~Package() = default;

model::Tensors Package::run(const model::Tensors&) const { return {}; }

bool Package::can_load() { return false; }

}  // namespace penstock::compiled

#endif
