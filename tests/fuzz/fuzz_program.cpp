// Texts of PyTorch programs, and archives around them.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "penstock/exported/program.h"
#include "penstock/exported/program_text.h"
#include "penstock/util/error.h"

namespace {

template <class Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const penstock::ParseError&) {
  } catch (const penstock::ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::exported;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!text.starts_with("PK")) {
    attempt([&] {
      Program program;
      read_program_text(text, "fuzz", program);
    });
    return 0;
  }
  const int file = memfd_create("fuzz", 0);
  if (file < 0) return 0;
  if (write(file, data, size) == static_cast<ssize_t>(size))
    attempt([&] { read_program("/proc/self/fd/" + std::to_string(file)); });
  close(file);
  return 0;
}
