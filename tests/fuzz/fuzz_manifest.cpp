// manifest.json of checkpoints, as it is and with its checksum made right: otherwise hardly any
// changed input would get past the checksum.
#include "penstock/train/checkpoint/manifest.h"

#include <fmt/format.h>

#include "penstock/util/files/files.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

std::string with_right_checksum(std::string_view text) {
  const std::string_view body = text.substr(0, text.rfind(",\n  \"crc32\": "));
  return fmt::format("{},\n  \"crc32\": \"{:08x}\"\n}}\n", body, penstock::crc32_of(body));
}

int fuzz_text(const uint8_t* data, size_t size) {
  using namespace penstock::train;
  return penstock::tests::fuzz(data, size, parse_manifest, [](const Manifest& value) {
    for (const ManifestLayer& layer : value.layers) {
      PENSTOCK_CHECK(layer.file.name.find_first_of(std::string_view("/\0", 2)) == std::string::npos,
                     layer.file.name);
    }
    return parse_manifest(manifest_text(value), "again");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz_text(data, size);
  const std::string forged = with_right_checksum({reinterpret_cast<const char*>(data), size});
  return fuzz_text(reinterpret_cast<const uint8_t*>(forged.data()), forged.size());
}
