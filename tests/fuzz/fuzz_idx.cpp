// IDX files, plain and gzip, as data sets are read.
#include "penstock/train/data/idx.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

penstock::train::IdxData parse_images(std::string_view content, std::string_view place) {
  return penstock::train::parse_idx(content, 3, place);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::train;
  return penstock::tests::fuzz(data, size, parse_images, [](const IdxData& value) {
    int64_t product = 1;
    for (const int64_t length : value.sizes) product *= length;
    if (product != static_cast<int64_t>(value.bytes.size())) std::abort();
    return value;
  });
}
