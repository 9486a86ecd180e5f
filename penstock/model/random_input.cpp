#include "penstock/model/random_input.h"

#include <ATen/Functions.h>

#include <string>
#include <vector>

namespace penstock::model {

at::Tensor random_input(const InputSpec& input, int64_t batch_size, at::Generator& generator) {
  std::vector<int64_t> sizes = input.shape;
  sizes.insert(sizes.begin(), batch_size);
  if (!at::isIntegralType(input.type, /*includeBool=*/true)) {
    return at::empty(sizes, at::TensorOptions().dtype(at::kFloat))
        .normal_(0, 1, generator)
        .to(input.type);
  }
  const bool is_mask = input.name.find("mask") != std::string::npos;
  if (is_mask || input.values < 1)
    return at::full(sizes, is_mask ? 1 : 0, at::TensorOptions().dtype(input.type));
  return at::empty(sizes, at::TensorOptions().dtype(at::kLong))
      .random_(0, input.values, generator)
      .to(input.type);
}

}  // namespace penstock::model
