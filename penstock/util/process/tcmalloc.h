// Functions of tcmalloc, where the process has it: linked into the program, or opened by it for
// tensors alone. Internal.
//
//   static const auto release = tcmalloc_function<void()>("MallocExtension_ReleaseFreeMemory");
//   if (release != nullptr) release();
#pragma once

#include <dlfcn.h>

namespace penstock {

/// Null where there is none. `Function`: the type of the C function.
template <class Function>
Function* tcmalloc_function(const char* name) {
  void* const library = ::dlopen("libtcmalloc_minimal.so.4", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* const function = reinterpret_cast<Function*>(::dlsym(library, name));
  ::dlclose(library);  // it stays: somebody else has loaded it
  return function;
}

}  // namespace penstock
