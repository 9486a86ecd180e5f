# Installs the libraries as a CMake package, and the command-line tool. Components: core (no
# libtorch), train, tool.
#
#   # headers, libraries, penstock-config.cmake
#   cmake --install build/core --prefix ~/penstock --component core
#
#   # in the CMakeLists.txt of the program that uses them
#   find_package(penstock 0.1 REQUIRED COMPONENTS core)
#   target_link_libraries(app PRIVATE penstock::core)
#
# COMPONENTS train finds libtorch and gives penstock::train, which brings penstock::core.
include(CMakePackageConfigHelpers)

get_property(penstock_core_targets GLOBAL PROPERTY PENSTOCK_CORE_TARGETS)

# penstock::core is all of them, for users who do not care which.
add_library(penstock_core INTERFACE)
add_library(penstock::core ALIAS penstock_core)
set_target_properties(penstock_core PROPERTIES EXPORT_NAME core)
target_link_libraries(penstock_core INTERFACE ${penstock_core_targets})

install(TARGETS ${penstock_core_targets} penstock_core EXPORT penstockTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT core)

# penstock_install_headers(<component> <umbrella> [<left out>]): cmake/InstallPublicHeaders.cmake.
function(penstock_install_headers component umbrella)
  install(CODE "
    set(SOURCE \"${PROJECT_SOURCE_DIR}\")
    set(UMBRELLA ${umbrella})
    set(LEFT_OUT \"${ARGN}\")
    set(DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/InstallPublicHeaders.cmake\")"
    COMPONENT ${component})
endfunction()
penstock_install_headers(core penstock/penstock.h)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)
install(EXPORT penstockTargets NAMESPACE penstock:: DESTINATION ${package_folder} COMPONENT core)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/penstock-config.cmake.in
                              ${PROJECT_BINARY_DIR}/penstock-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/penstock-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/penstock-config.cmake
              ${PROJECT_BINARY_DIR}/penstock-config-version.cmake
        DESTINATION ${package_folder} COMPONENT core)

if(PENSTOCK_WITH_TORCH)
  get_property(penstock_train_targets GLOBAL PROPERTY PENSTOCK_TRAIN_TARGETS)
  # Programs that train also plan.
  target_link_libraries(penstock_train INTERFACE $<INSTALL_INTERFACE:penstock::core>)
  install(TARGETS ${penstock_train_targets} EXPORT penstockTrainTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT train
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT train)
  install(EXPORT penstockTrainTargets NAMESPACE penstock::
          DESTINATION ${package_folder} COMPONENT train)
  penstock_install_headers(train penstock/torch.h penstock/penstock.h)
endif()

install(TARGETS penstock RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
if(TARGET penstock-train)
  install(TARGETS penstock-train
          RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/penstock COMPONENT tool)
  foreach(module penstock_mpi penstock_opencv)
    if(TARGET ${module})
      install(TARGETS ${module}
              LIBRARY DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/penstock COMPONENT tool)
    endif()
  endforeach()
endif()
