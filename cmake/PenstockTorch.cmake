# libtorch, with one precompiled header shared by every torch target (torch headers cost seconds per
# file).
find_package(Torch REQUIRED)

add_library(penstock_torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/torch_pch.cpp)
target_link_libraries(penstock_torch_pch PUBLIC ${TORCH_LIBRARIES})
target_compile_options(penstock_torch_pch PRIVATE ${PENSTOCK_CORE_WARNINGS} -Wno-shadow)
target_precompile_headers(penstock_torch_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/torch_pch.h)
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_torch_pch PRIVATE
    -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer)
endif()

function(penstock_use_torch target)
  target_link_libraries(${target} PUBLIC ${TORCH_LIBRARIES})
  target_compile_options(${target} PRIVATE -Wno-shadow)
  # A precompiled header serves only files compiled as it was: executables take -fPIC like the
  # libraries instead of -fPIE.
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM penstock_torch_pch)
endfunction()
