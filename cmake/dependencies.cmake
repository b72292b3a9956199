# Finds every dependency. What is missing is reported in one message, each with the package that has it.
#
# dltrain_require(NAME PACKAGE [find_package arguments…]) notes a miss; dltrain_check_dependencies()
# stops if there was one.
set(dltrain_missing "")

macro(dltrain_require name package)
  find_package(${name} ${ARGN} QUIET)
  if(NOT ${name}_FOUND)
    list(APPEND dltrain_missing ${name}:${package})
  endif()
endmacro()

function(dltrain_check_dependencies)
  if(NOT dltrain_missing)
    return()
  endif()
  set(lines "")
  set(packages "")
  foreach(miss ${dltrain_missing})
    string(REPLACE ":" ";" miss ${miss})
    list(GET miss 0 name)
    list(GET miss 1 package)
    string(APPEND lines "  ${name} is missing: package ${package}\n")
    string(APPEND packages " ${package}")
  endforeach()
  message(FATAL_ERROR "dltrain lacks libraries it is built with:\n${lines}"
                      "Install them with: apt-get install${packages}\nor run scripts/install_dependencies.sh")
endfunction()

# The wrapper target that code links instead of OpenMP itself. Without OpenMP the pragmas are ignored
# and only the library of omp_get_max_threads() and the like is linked (oneDNN brings it anyway).
add_library(dltrain_openmp INTERFACE)
if(DLTRAIN_OPENMP)
  dltrain_require(OpenMP libgomp1 COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(dltrain_openmp INTERFACE OpenMP::OpenMP_CXX)
  endif()
else()
  target_link_libraries(dltrain_openmp INTERFACE gomp)
endif()

dltrain_require(Threads libc6-dev)
dltrain_require(fmt libfmt-dev)
dltrain_require(spdlog libspdlog-dev)
dltrain_require(yaml-cpp libyaml-cpp-dev)
dltrain_require(CLI11 libcli11-dev)
dltrain_require(nlohmann_json nlohmann-json3-dev)
# Debian's oneDNN is built with OpenCL, and its CMake package stops where that is missing.
dltrain_require(OpenCL ocl-icd-opencl-dev)
if(OpenCL_FOUND)
  dltrain_require(dnnl libdnnl-dev)
endif()
dltrain_require(hwy libhwy-dev)
dltrain_require(Gloo libgloo-dev CONFIG)
dltrain_require(ZLIB zlib1g-dev)
# Used as a header only (XXH_INLINE_ALL): nothing to link, nothing to carry in a bundle.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
  list(APPEND dltrain_missing xxhash:libxxhash-dev)
endif()
if(DLTRAIN_BUILD_TESTS)
  dltrain_require(Catch2 catch2)
endif()
dltrain_check_dependencies()

# yaml-cpp 0.8 (Ubuntu 24.04) exports yaml-cpp::yaml-cpp, 0.7 (Debian 12) plain yaml-cpp.
if(TARGET yaml-cpp::yaml-cpp AND NOT TARGET yaml-cpp)
  add_library(yaml-cpp INTERFACE IMPORTED)
  target_link_libraries(yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
endif()
