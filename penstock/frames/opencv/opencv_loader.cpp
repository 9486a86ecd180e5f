#include "penstock/frames/opencv/opencv_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "penstock/util/error.h"
#include "penstock/util/process/mutex.h"
#include "penstock/util/text/printable.h"

namespace penstock::frames {

namespace {

/// OpenCV reads these when it is loaded or first used.
void set_environment() {
  constexpr std::array<std::pair<const char*, const char*>, 3> kVariables = {{
      {"OPENCV_LOG_LEVEL", "SILENT"},
      // 8192 x 8192: a small file can claim and fill far more.
      {"OPENCV_IO_MAX_IMAGE_PIXELS", "67108864"},
      // Seconds for which a camera that delivers nothing blocks its thread.
      {"OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT", "2"},
  }};
  for (const auto& [name, value] : kVariables) ::setenv(name, value, /*replace=*/0);
}

const OpencvInterface* load(const std::filesystem::path& module) {
  std::error_code ignored;
  if (!std::filesystem::exists(module, ignored)) {
    throw ConfigError(fmt::format(
        "images, videos and cameras need OpenCV, and this penstock was built without it: there is "
        "no {}. Install libopencv-imgcodecs-dev, libopencv-videoio-dev, libavformat-dev and "
        "libswscale-dev (scripts/install-deps.sh does) and build again; or give raw frames with "
        "their size and pixel format",
        module.string()));
  }
  set_environment();
  void* const library = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw ConfigError(
        fmt::format("cannot load OpenCV: {} (expected the packages "
                    "libopencv-imgcodecs406, libopencv-videoio406, "
                    "libavformat59 and libswscale6)",
                    dlerror()));
  }
  const auto entry = reinterpret_cast<OpencvEntry>(dlsym(library, kOpencvEntry));
  const OpencvInterface* const found = entry == nullptr ? nullptr : entry();
  if (found == nullptr || found->version != kOpencvVersion)
    throw ConfigError(fmt::format("{} is of another version of penstock", module.string()));
  return found;
}

}  // namespace

std::filesystem::path opencv_module_beside_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path() / kOpencvModule;
}

const OpencvInterface& load_opencv(const std::filesystem::path& module) {
  static Mutex mutex;
  static const OpencvInterface* loaded = nullptr;
  MutexLock lock(mutex);
  if (loaded == nullptr) loaded = load(module.empty() ? opencv_module_beside_program() : module);
  return *loaded;
}

PictureHandle make_picture(const OpencvInterface& opencv) {
  PictureHandle picture(opencv.make_picture(), opencv.free_picture);
  if (!picture) throw RuntimeError("no memory for a picture");
  return picture;
}

std::string text_of(const OpencvError& error) { return printable(error.text.data()); }

}  // namespace penstock::frames
