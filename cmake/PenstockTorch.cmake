# libtorch, with a precompiled header shared by every torch target, and one by the tests (torch
# headers cost seconds per file).
# pip builds for the libtorch of its Python, whatever else is in the system's folders.
if(SKBUILD)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import os, torch; print(os.path.dirname(torch.__file__))"
    OUTPUT_VARIABLE penstock_pip_torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  list(PREPEND CMAKE_PREFIX_PATH ${penstock_pip_torch})
endif()
include(cmake/PenstockCuda.cmake)
find_package(Torch REQUIRED)

function(penstock_precompile_torch target)
  add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
  target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
  target_compile_options(${target} PRIVATE ${PENSTOCK_CORE_WARNINGS} -Wno-shadow ${ARGN})
  target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)
  if(PENSTOCK_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
  endif()
endfunction()
penstock_precompile_torch(penstock_torch_pch)
# A precompiled header serves only files compiled as it was; tests are compiled with -O1.
if(PENSTOCK_BUILD_TESTS AND CMAKE_BUILD_TYPE STREQUAL "Release")
  penstock_precompile_torch(penstock_torch_test_pch -O1)
else()
  add_library(penstock_torch_test_pch ALIAS penstock_torch_pch)
endif()

# The wheels of PyTorch bring headers of another version of fmt than the one we link; ours comes
# first.
find_path(penstock_torch_fmt fmt/format.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH NO_CACHE)
get_target_property(penstock_own_fmt fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
if(penstock_torch_fmt AND NOT penstock_torch_fmt STREQUAL penstock_own_fmt)
  set(penstock_fmt_first ${PROJECT_BINARY_DIR}/fmt-first)
  file(MAKE_DIRECTORY ${penstock_fmt_first})
  file(CREATE_LINK ${penstock_own_fmt}/fmt ${penstock_fmt_first}/fmt SYMBOLIC)
endif()

# Where an installed program finds a libtorch that is outside of the system's folders. CMake itself
# leaves out folders below the project's.
get_filename_component(penstock_torch_libraries ${TORCH_LIBRARY} DIRECTORY)
file(REAL_PATH ${penstock_torch_libraries} penstock_torch_libraries)
if(penstock_torch_libraries IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
  set(penstock_torch_libraries "")
endif()

# Debian's libtorch needs Debian's protobuf. The linker leaves that out where libtorch names it, and
# would take libsentencepiece instead (penstock/text), which has some of its symbols.
if(NOT penstock_torch_libraries)
  find_library(PENSTOCK_PROTOBUF protobuf)
endif()

# The Python that a wheel belongs to: tests let it read what we write.
set(penstock_torch_python "")
file(REAL_PATH ${Torch_DIR} penstock_torch_folder)
if(penstock_torch_folder MATCHES "^(.*)/lib/[^/]*/site-packages/torch/" AND
   EXISTS "${CMAKE_MATCH_1}/bin/python3")
  set(penstock_torch_python "${CMAKE_MATCH_1}/bin/python3")
endif()

# penstock_use_torch(<target> [<target with the precompiled header>])
function(penstock_use_torch target)
  target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
  if(PENSTOCK_PROTOBUF)
    target_link_options(${target} INTERFACE LINKER:--no-as-needed,${PENSTOCK_PROTOBUF},--as-needed)
  endif()
  if(penstock_fmt_first)
    target_include_directories(${target} SYSTEM BEFORE PRIVATE ${penstock_fmt_first})
  endif()
  target_compile_options(${target} PRIVATE -Wno-shadow)
  # For the precompiled header's sake executables take -fPIC like the libraries instead of -fPIE.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  set(header penstock_torch_pch)
  if(ARGC GREATER 1)
    set(header ${ARGV1})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()
