# Installs components below WORK_FOLDER, checks which headers came, and builds and runs a project
# against them.
#   cmake -DBUILD_FOLDER=... -DWORK_FOLDER=... -DCONSUMER=... "-DCOMPONENTS=core;train"
#         -DGENERATOR=... -DCOMPILER=... -DFLAGS=... -P install_test.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${WORK_FOLDER})

function(step)
  execute_process(COMMAND ${ARGN}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit code ${status}: ${command}\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

set(prefix ${WORK_FOLDER}/prefix)
foreach(component IN LISTS COMPONENTS)
  step(${CMAKE_COMMAND} --install ${BUILD_FOLDER} --prefix ${prefix} --component ${component})
endforeach()

file(GLOB_RECURSE headers ${prefix}/include/*.h)
list(LENGTH headers count)
if(count LESS 20)
  message(FATAL_ERROR "only ${count} headers were installed: ${headers}")
endif()
foreach(header IN LISTS headers)
  get_filename_component(name ${header} NAME)
  if(name MATCHES "^test(ing)?_")
    message(FATAL_ERROR "a helper of tests is installed: ${header}")
  endif()
  if(header MATCHES "/penstock/(model|runtime|train)/" AND NOT "train" IN_LIST COMPONENTS)
    message(FATAL_ERROR "the core must not install a header that needs libtorch: ${header}")
  endif()
  file(READ ${header} text)
  string(REGEX REPLACE "\n// ?" " " text "${text}")
  if(text MATCHES "[Ii]nternal to ")
    message(FATAL_ERROR "${header} is installed and says that it is internal: no header that "
                        "penstock.h or torch.h reach may include it")
  endif()
endforeach()

step(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK_FOLDER}/build -G ${GENERATOR}
     -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS}
     -DCMAKE_PREFIX_PATH=${prefix})
step(${CMAKE_COMMAND} --build ${WORK_FOLDER}/build)
step(${WORK_FOLDER}/build/consumer)
