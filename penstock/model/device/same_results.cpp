#include "penstock/model/device/same_results.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace penstock::model {

SameResults::SameResults()
    : cudnn_(at::globalContext().deterministicCuDNN()),
      others_(at::globalContext().deterministicAlgorithms()),
      warns_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
  // What cuBLAS needs for it, read when it is first used.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
}

SameResults::~SameResults() {
  at::globalContext().setDeterministicCuDNN(cudnn_);
  at::globalContext().setDeterministicAlgorithms(others_, warns_);
}

}  // namespace penstock::model
