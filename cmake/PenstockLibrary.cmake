# penstock_library(<folder> SOURCES a.cpp ... [DEPS penstock::util ...] [EXTERNAL fmt::fmt ...]
#                  [TORCH] [TESTS a_test.cpp ...] [TEST_DEPS ...])
#
# One static library per folder, penstock::<folder>, with its unit tests beside the sources. DEPS is
# the include table of CONTRIBUTING.md: a folder may include nothing else of ours. Tests may use
# more: TEST_DEPS.
set(PENSTOCK_CORE_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlaps and overflows in plain std::string concatenation that are not there (GCC
  # bug 105651).
  list(APPEND PENSTOCK_CORE_WARNINGS -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()

# At most so many files of one target in one piece (-DPENSTOCK_JUMBO=ON): their headers are read
# once, so that a whole build takes a third. Without it only the file that was changed is compiled
# again. Names in anonymous namespaces must differ within a target. A piece of tests takes a minute
# of one processor and 1.2 GB at most.
set(PENSTOCK_FILES_PER_PIECE 16)

function(penstock_compile_options target)
  if(PENSTOCK_JUMBO)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${PENSTOCK_FILES_PER_PIECE})
    # A piece looks like a header that others include; nobody includes it.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
  target_compile_options(${target} PRIVATE ${PENSTOCK_CORE_WARNINGS})
  if(PENSTOCK_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(PENSTOCK_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${PENSTOCK_SANITIZE})
  endif()
endfunction()

# penstock_test(<name> SOURCES ... DEPS ... [TORCH] [LABELS unit]): a GoogleTest program; a test per
# case, or, with libtorch, few tests.
function(penstock_test name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  penstock_compile_options(${name})
  # Few pieces, of one size.
  list(LENGTH arg_SOURCES files)
  math(EXPR pieces "(${files} + ${PENSTOCK_FILES_PER_PIECE} - 1) / ${PENSTOCK_FILES_PER_PIECE}")
  math(EXPR size "(${files} + ${pieces} - 1) / ${pieces}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE ${size})
  # Half of the time to compile them.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(arg_TORCH)
    penstock_use_torch(${name} penstock_torch_test_pch)
  elseif(NOT PENSTOCK_TORCH_FREE_TESTS)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  if(NOT arg_TORCH OR "gpu" IN_LIST arg_LABELS)
    gtest_discover_tests(${name}
      PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 120 DISCOVERY_TIMEOUT 60)
    return()
  endif()
  # Loading libtorch takes a second, so cases share processes.
  set(shards 1)
  if(files GREATER 4)
    set(shards 4)
  endif()
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}.${shard} COMMAND ${name})
    set_tests_properties(${name}.${shard} PROPERTIES
      LABELS "${arg_LABELS}" TIMEOUT 900
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

function(penstock_library folder)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPS;EXTERNAL;TESTS;TEST_DEPS" ${ARGN})
  set(target penstock_${folder})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(penstock::${folder} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_DEPS} ${arg_EXTERNAL})
  penstock_compile_options(${target})
  if(arg_TORCH)
    penstock_use_torch(${target})
    set_property(GLOBAL APPEND PROPERTY PENSTOCK_TRAIN_TARGETS ${target})
  else()
    set_property(GLOBAL APPEND PROPERTY PENSTOCK_CORE_TARGETS ${target})
  endif()
  if(PENSTOCK_BUILD_TESTS AND arg_TESTS)
    if(arg_TORCH)
      penstock_test(${folder}_test SOURCES ${arg_TESTS} DEPS ${target} ${arg_TEST_DEPS} TORCH)
    else()
      penstock_test(${folder}_test SOURCES ${arg_TESTS} DEPS ${target} ${arg_TEST_DEPS})
    endif()
  endif()
endfunction()
