// Kernels of GPUs that add in the same order each time, at some cost of speed.
#pragma once

namespace penstock::model {

/// While it lives, libtorch takes such kernels where it has them, and warns where it has not. Of
/// the whole process: not while anything computes.
class SameResults {
 public:
  SameResults();
  ~SameResults();
  SameResults(const SameResults&) = delete;
  SameResults& operator=(const SameResults&) = delete;

 private:
  bool cudnn_;
  bool others_;
  bool warns_;
};

}  // namespace penstock::model
