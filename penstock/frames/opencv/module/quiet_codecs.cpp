// libjpeg and libpng print to stderr when an image is damaged, and OpenCV leaves them to. When
// OpenCV looks for the functions by which it sets these libraries up, it finds those here first,
// because this module was loaded before its libraries were; they do the same, and take the printing
// away. A program that has loaded these libraries before, as one does that links Debian's libtorch,
// has to hold this file itself, and to export its functions (quiet_codecs.list): then they are
// found there. Otherwise OpenCV finds the originals, and images are decoded as well, with messages.
#include <dlfcn.h>

namespace {

/// The beginning of jpeg_error_mgr, the same in all versions of libjpeg.
struct JpegErrorManager {
  void (*error_exit)(void*);
  void (*emit_message)(void*, int);
  void (*output_message)(void*);
};

using JpegStandardError = JpegErrorManager* (*)(JpegErrorManager*);
using PngErrorFunction = void (*)(void*, const char*);
using PngCreateRead = void* (*)(const char*, void*, PngErrorFunction, PngErrorFunction);
using PngLongjmp = void (*)(void*, int);

/// A function of a library that is loaded already, if need be under another name; never closed.
template <class Function>
Function function_of(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(dlsym(handle == nullptr ? RTLD_NEXT : handle, name));
}

void ignore_jpeg_message(void*) {}
void ignore_png_warning(void*, const char*) {}

void leave_png(void* png, const char*) {
  static const auto longjmp_of_png = function_of<PngLongjmp>("libpng16.so.16", "png_longjmp");
  longjmp_of_png(png, 1);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) JpegErrorManager* jpeg_std_error(
    JpegErrorManager* manager) {
  static const auto original = function_of<JpegStandardError>("libjpeg.so.62", "jpeg_std_error");
  JpegErrorManager* const result = original(manager);
  result->output_message = ignore_jpeg_message;
  return result;
}

extern "C" __attribute__((visibility("default"))) void* png_create_read_struct(
    const char* version, void* error_data, PngErrorFunction on_error, PngErrorFunction on_warning) {
  static const auto original =
      function_of<PngCreateRead>("libpng16.so.16", "png_create_read_struct");
  return original(version, error_data, on_error != nullptr ? on_error : leave_png,
                  on_warning != nullptr ? on_warning : ignore_png_warning);
}
