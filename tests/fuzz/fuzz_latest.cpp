// The file `latest` of a checkpoint folder, as it is and with its checksum made right. What is
// accepted is a plain folder name.
#include <string>

#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"

namespace {

void check(std::string_view text) {
  using namespace penstock;
  try {
    const std::string name = train::parse_latest(text, "fuzz");
    PENSTOCK_CHECK(train::latest_text(name) == text, name);
    PENSTOCK_CHECK(name.starts_with("step-") && name.find_first_of("/.\\\n") == std::string::npos,
                   name);
  } catch (const CheckpointError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  check(penstock::train::latest_text(std::string(text.substr(0, text.find('\n')))));
  return 0;
}
