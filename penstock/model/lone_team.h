// A member of a team without the others, to try its layers: as if all others gave zeros.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "penstock/model/team.h"

namespace penstock::model {

class LoneTeam final : public Team {
 public:
  LoneTeam(int size, int member) : size_(size), member_(member) {}

  int size() const override { return size_; }
  int member() const override { return member_; }
  std::vector<at::Tensor> exchange(std::vector<at::Tensor> parts,
                                   const std::vector<std::vector<int64_t>>& sizes) override {
    const auto own = static_cast<size_t>(member_);
    for (size_t m = 0; m < parts.size(); ++m) {
      if (m != own) parts[m] = parts[own].new_zeros(sizes[m]);
    }
    return parts;
  }

 private:
  int size_;
  int member_;
};

}  // namespace penstock::model
