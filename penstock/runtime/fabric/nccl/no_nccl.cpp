// Takes the place of nccl_links.cpp where libtorch is not one for CUDA or NCCL is not there.
#include "penstock/runtime/fabric/nccl/nccl_links.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

bool has_nccl() { return false; }

LinkMaker make_nccl_links(NcclSetup) {
  throw ConfigError(
      "this build of penstock has no NCCL: it takes a libtorch for CUDA and NCCL's header and "
      "library, as PyTorch's wheels for CUDA bring them");
}

}  // namespace penstock::runtime
