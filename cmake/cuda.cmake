# Finds the dependencies of the CUDA engine: nvcc, the runtime, cuBLASLt and cuDNN 9. Sets DLTRAIN_CUDA_FOUND
# and the targets dltrain_cudnn and CUDA::*.
#
# DLTRAIN_CUDA=OFF: nothing is searched. AUTO: if something is missing, the engine is left out with a message.
# ON: a missing dependency is an error. Of NCCL only the header is needed (package libnccl-dev): the engine loads
# the library when ranks on GPUs need it.
set(DLTRAIN_CUDA_FOUND FALSE)
if(DLTRAIN_CUDA STREQUAL "OFF")
  return()
endif()

function(dltrain_no_cuda reason)
  if(DLTRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DLTRAIN_CUDA=ON, but ${reason}")
  endif()
  message(STATUS "Building without the CUDA engine: ${reason}")
endfunction()

# Machine code for Turing (T4, RTX 20), for Ampere and Hopper data-centre GPUs and for the newest family that nvcc 13
# supports, and PTX for sm_80, which GPUs between and after these compile at load time (the kernels use no newer
# features). -DCMAKE_CUDA_ARCHITECTURES=90a-real builds faster during work on a kernel.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80 90a-real 120-real CACHE STRING "GPU architectures of the CUDA engine")
endif()
# The oldest of them; the engine refuses older GPUs (75 is the oldest that CUDA 13 compiles for).
set(DLTRAIN_CUDA_LEAST_ARCHITECTURE 1000)
foreach(architecture ${CMAKE_CUDA_ARCHITECTURES})
  if(architecture MATCHES "^([0-9]+)")
    set(architecture ${CMAKE_MATCH_1})
  else()
    set(architecture 75)  # all, all-major, native
  endif()
  if(architecture LESS DLTRAIN_CUDA_LEAST_ARCHITECTURE)
    set(DLTRAIN_CUDA_LEAST_ARCHITECTURE ${architecture})
  endif()
endforeach()
# The default is the static runtime, which would be a second instance besides that of cuDNN and cuBLASLt.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  dltrain_no_cuda("no nvcc was found (CUDA toolkit; set CUDACXX or CMAKE_CUDA_COMPILER)")
  return()
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc supports C++20, and drops CUDA_STANDARD 20 or refuses it.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cublasLt)
  dltrain_no_cuda("the toolkit of ${CMAKE_CUDA_COMPILER} has no cuBLASLt (package libcublas-dev)")
  return()
endif()
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
  dltrain_no_cuda("cuDNN 9 was not found (package libcudnn9-dev-cuda-${CUDAToolkit_VERSION_MAJOR}; \
set CUDNN_INCLUDE_DIR and CUDNN_LIBRARY)")
  return()
endif()
add_library(dltrain_cudnn INTERFACE)
target_include_directories(dltrain_cudnn SYSTEM INTERFACE ${CUDNN_INCLUDE_DIR})
target_link_libraries(dltrain_cudnn INTERFACE ${CUDNN_LIBRARY})
# Headers only, for cuDNN's fused attention. A build without it is many times slower on language models, so it must
# be asked for.
if(DLTRAIN_CUDNN_ATTENTION)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CMAKE_SOURCE_DIR}/.deps/cudnn-frontend/include)
  mark_as_advanced(CUDNN_FRONTEND_INCLUDE_DIR)
  if(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    message(FATAL_ERROR "The CUDA engine needs the headers of cudnn-frontend for cuDNN's attention. Run this, which \
needs no root rights, and configure again:
  scripts/cudnn_frontend.sh
Without them the engine has only its own attention, much slower on language models: -DDLTRAIN_CUDNN_ATTENTION=OFF. \
Without any GPU engine: -DDLTRAIN_CUDA=OFF.")
  endif()
else()
  set(CUDNN_FRONTEND_INCLUDE_DIR "")
  message(STATUS "Building without cuDNN's attention (DLTRAIN_CUDNN_ATTENTION=OFF)")
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(NCCL_INCLUDE_DIR)
if(NOT NCCL_INCLUDE_DIR)
  message(STATUS "nccl.h was not found: messages between GPUs go through host memory")
endif()
set(DLTRAIN_CUDA_FOUND TRUE)

# dltrain_cudnn_attention_plan(SOURCE): compiles the one file that includes cudnn-frontend's headers, which are slow to
# compile, for the engine and for the test of its plans.
function(dltrain_cudnn_attention_plan source)
  add_library(dltrain_cudnn_attention_plan OBJECT ${source})
  set_target_properties(dltrain_cudnn_attention_plan PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(dltrain_cudnn_attention_plan PRIVATE ${CMAKE_SOURCE_DIR}/kernels)
  target_include_directories(dltrain_cudnn_attention_plan SYSTEM PRIVATE ${CUDNN_FRONTEND_INCLUDE_DIR})
  target_compile_options(dltrain_cudnn_attention_plan PRIVATE -O1 -w)
  target_link_libraries(dltrain_cudnn_attention_plan
    PUBLIC dltrain_base dltrain_cudnn CUDA::cudart CUDA::nvrtc ${CMAKE_DL_LIBS} PRIVATE dltrain_tensor)
endfunction()

# dltrain_cuda_engine(SOURCES…): builds libdltrain_cuda.so, the plug-in for lib/device/engine.h. Only its
# entry point is exported; the libraries of lib/ that it needs are linked into it.
function(dltrain_cuda_engine)
  # In a wheel (scripts/package.sh) the engine and NVIDIA's wheels are neighbours.
  set(run_path "$ORIGIN")
  foreach(folder cu${CUDAToolkit_VERSION_MAJOR} cudnn nccl)
    list(APPEND run_path "$ORIGIN/../nvidia/${folder}/lib")
  endforeach()
  add_library(dltrain_engine_cuda MODULE ${ARGN})
  set_target_properties(dltrain_engine_cuda PROPERTIES
    OUTPUT_NAME dltrain_cuda
    CUDA_STANDARD 20
    INSTALL_RPATH "${run_path};/usr/local/cuda/lib64"
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/cuda_exports.map)
  target_include_directories(dltrain_engine_cuda PRIVATE ${CMAKE_SOURCE_DIR}/kernels)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/kernels/cuda/vendor/device.cpp TARGET_DIRECTORY dltrain_engine_cuda
    PROPERTIES COMPILE_DEFINITIONS DLTRAIN_CUDA_LEAST_ARCHITECTURE=${DLTRAIN_CUDA_LEAST_ARCHITECTURE})
  target_compile_options(dltrain_engine_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall> $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${DLTRAIN_WERROR}>>:-Werror=all-warnings>)
  target_link_libraries(dltrain_engine_cuda PRIVATE
    dltrain_shared dltrain_ops dltrain_device dltrain_tensor dltrain_base
    CUDA::cudart CUDA::cublasLt dltrain_cudnn)
  target_link_options(dltrain_engine_cuda PRIVATE
    LINKER:--version-script=${CMAKE_SOURCE_DIR}/cmake/cuda_exports.map LINKER:--no-undefined)
  if(TARGET dltrain_cudnn_attention_plan)
    target_compile_definitions(dltrain_engine_cuda PRIVATE DLTRAIN_CUDNN_FRONTEND)
    target_sources(dltrain_engine_cuda PRIVATE $<TARGET_OBJECTS:dltrain_cudnn_attention_plan>)
    target_link_libraries(dltrain_engine_cuda PRIVATE CUDA::nvrtc ${CMAKE_DL_LIBS})
  endif()
  if(NCCL_INCLUDE_DIR)
    target_compile_definitions(dltrain_engine_cuda PRIVATE DLTRAIN_NCCL)
    target_include_directories(dltrain_engine_cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    target_link_libraries(dltrain_engine_cuda PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  endif()
  install(TARGETS dltrain_engine_cuda LIBRARY DESTINATION lib)
endfunction()
