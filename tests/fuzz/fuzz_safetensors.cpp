// Headers of safetensors files, as checkpoints are read.
#include "penstock/util/files/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  using Tensors = std::vector<TensorInfo>;
  return penstock::tests::fuzz(data, size, parse_safetensors, [](const Tensors& value) {
    Tensors tensors = value;
    std::string file = make_safetensors_header(tensors);
    file.resize(file.size() + (tensors.empty() ? 0 : static_cast<size_t>(tensors.back().end)));
    return parse_safetensors(file, "again");
  });
}
