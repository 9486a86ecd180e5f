// Takes the place of gloo.cpp where libtorch or the system has no Gloo.
#include "penstock/runtime/fabric/c10d/gloo.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

bool has_gloo() { return false; }

std::unique_ptr<net::Carrier> make_gloo_carrier(const GlooSetup&) {
  throw ConfigError(
      "this build of penstock has no Gloo: its libtorch came without Gloo's headers, as PyTorch's "
      "wheels do (Debian's package has them)");
}

}  // namespace penstock::runtime
