# Installs the torch-free core as a CMake package, and the command-line tool:
#
#   # headers, libraries, penstock-config.cmake
#   cmake --install build/core --prefix ~/penstock --component core
#
#   # in the CMakeLists.txt of the program that uses them
#   find_package(penstock 0.1 REQUIRED)
#   target_link_libraries(app PRIVATE penstock::core)
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

install(FILES ${PROJECT_SOURCE_DIR}/penstock/penstock.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/penstock COMPONENT core)
foreach(target ${penstock_core_targets})
  get_target_property(folder ${target} EXPORT_NAME)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/penstock/${folder}
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/penstock COMPONENT core
          FILES_MATCHING PATTERN "*.h")
endforeach()

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

install(TARGETS penstock RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
if(TARGET penstock-train)
  install(TARGETS penstock-train
          RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/penstock COMPONENT tool)
endif()
