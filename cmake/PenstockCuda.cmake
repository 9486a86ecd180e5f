# What libtorch's own configuration needs before find_package(Torch) when that libtorch is one for
# CUDA: it insists on a whole CUDA toolkit with nvcc, and on CMake's knowledge of it, though we
# compile no CUDA code of our own. Nothing where libtorch is for the CPU.
#
# - The toolkit is where nvcc says it is: nvcc may be a script or a link that lies elsewhere.
# - CUDA's own dialect would follow C++20, which CMake 3.25 does not know of CUDA 13's compiler.
# - The architectures of our kernels, of which there are none: asking the GPU needs one here.
# - Libraries and headers of the toolkit that are not installed are those of the wheel's packages
#   nvidia/cu*, which are what libtorch itself loads.
find_file(penstock_torch_config TorchConfig.cmake PATH_SUFFIXES share/cmake/Torch NO_CACHE)
set(penstock_cuda_libraries "")
set(penstock_cuda_include "")  # compile options
if(penstock_torch_config)
  get_filename_component(penstock_torch_root "${penstock_torch_config}/../../../.." REALPATH)
  if(EXISTS "${penstock_torch_root}/lib/libtorch_cuda.so")
    file(GLOB penstock_cuda_wheels "${penstock_torch_root}/../nvidia/cu[0-9]*")
    foreach(folder IN LISTS penstock_cuda_wheels)
      list(APPEND penstock_cuda_libraries "${folder}/lib")
      list(APPEND penstock_cuda_include -idirafter "${folder}/include")
    endforeach()
    file(GLOB folder "${penstock_torch_root}/../nvidia/nccl/include")
    if(folder)
      list(APPEND penstock_cuda_include -idirafter "${folder}")
    endif()

    find_program(penstock_nvcc nvcc PATHS /usr/local/cuda/bin NO_CACHE)
    if(penstock_nvcc AND NOT CUDA_TOOLKIT_ROOT_DIR)
      execute_process(COMMAND ${penstock_nvcc} -v --dryrun none.cu
        OUTPUT_QUIET ERROR_VARIABLE said)
      if(said MATCHES "TOP=([^\n]+)")
        get_filename_component(root "${CMAKE_MATCH_1}" REALPATH)
        set(CUDA_TOOLKIT_ROOT_DIR "${root}" CACHE PATH "The CUDA toolkit, as nvcc names it")
      endif()
    endif()
    if(NOT CMAKE_CUDA_STANDARD)
      set(CMAKE_CUDA_STANDARD 17)
    endif()
    if(NOT TORCH_CUDA_ARCH_LIST)
      set(TORCH_CUDA_ARCH_LIST 8.0)
    endif()
    find_library(CUDA_nvrtc_LIBRARY NAMES nvrtc libnvrtc.so.13 libnvrtc.so.12
      PATHS ${CUDA_TOOLKIT_ROOT_DIR}/lib64 ${penstock_cuda_libraries})
  endif()
endif()
