# dltrain_cuda_emulated: the own kernels of the CUDA engine (not its vendor rows), compiled by the C++
# compiler over tests/cuda_emulation. Needs no CUDA toolkit.
file(GLOB emulated_kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu)
file(GLOB emulated_classes CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cpp)
set(emulated_sources ${emulated_classes} ${DLTRAIN_FUSED_HEADERS} ${CMAKE_CURRENT_LIST_DIR}/emulation.cpp ${CMAKE_CURRENT_LIST_DIR}/engine.cpp)
foreach(kernel ${emulated_kernels})
  get_filename_component(name ${kernel} NAME_WE)
  set(wrapper ${CMAKE_BINARY_DIR}/generated/emulated_${name}.cpp)
  file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"cuda_emulation/emulation.h\"\n#include \"cuda/${name}.cu\"\n")
  list(APPEND emulated_sources ${wrapper})
endforeach()
add_library(dltrain_cuda_emulated STATIC ${emulated_sources})
target_include_directories(dltrain_cuda_emulated PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} PRIVATE ${CMAKE_SOURCE_DIR}/kernels)
target_link_libraries(dltrain_cuda_emulated PUBLIC dltrain_ops dltrain_shared)
# x86 forgives accesses that are not aligned; a GPU does not.
target_compile_options(dltrain_cuda_emulated PRIVATE -fsanitize=alignment -fno-sanitize-recover=alignment)
target_link_options(dltrain_cuda_emulated PUBLIC -fsanitize=alignment)
