#include "penstock/model/layers/gelu.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

namespace penstock::model {

namespace {

class SoundGelu : public torch::autograd::Function<SoundGelu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::string& approximate) {
    context->save_for_backward({input});
    context->saved_data["approximate"] = approximate;
    return at::gelu(input, approximate);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor input = context->get_saved_variables().front();
    return {at::gelu_backward(gradients.front().contiguous(), input.contiguous(),
                              context->saved_data["approximate"].toStringRef()),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& input, const std::string& approximate) {
  if (TORCH_VERSION_MAJOR >= 2) return at::gelu(input, approximate);
  return SoundGelu::apply(input, approximate);
}

}  // namespace penstock::model
