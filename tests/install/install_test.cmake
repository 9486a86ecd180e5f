# Installs the core below WORK_FOLDER and builds and runs the project beside this file against it.
#   cmake -DBUILD_FOLDER=... -DWORK_FOLDER=... -DCONSUMER=... -DGENERATOR=... -DCOMPILER=... \
#         -DFLAGS=... -P install_test.cmake
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

step(${CMAKE_COMMAND} --install ${BUILD_FOLDER} --prefix ${WORK_FOLDER}/prefix --component core)
file(GLOB_RECURSE torch_headers
     ${WORK_FOLDER}/prefix/include/penstock/model/*.h
     ${WORK_FOLDER}/prefix/include/penstock/runtime/*.h)
if(torch_headers)
  message(FATAL_ERROR "the core must not install headers that need torch: ${torch_headers}")
endif()
step(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK_FOLDER}/build -G ${GENERATOR}
     -DCMAKE_BUILD_TYPE=Release
     -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS}
     -DCMAKE_PREFIX_PATH=${WORK_FOLDER}/prefix)
step(${CMAKE_COMMAND} --build ${WORK_FOLDER}/build)
step(${WORK_FOLDER}/build/consumer)
