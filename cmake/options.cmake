# Language standard, warnings and user options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

option(DLTRAIN_BUILD_TESTS "Build the tests" ON)
# scripts/test.sh sets it. Users may have a compiler whose warnings nobody has seen.
option(DLTRAIN_WERROR "Treat warnings as errors" OFF)
option(DLTRAIN_OPENMP "Compile with OpenMP (off for the thread sanitizer, which cannot see its barriers)" ON)
# Names in unnamed namespaces are unique within a library. Larger units compile faster as a whole and slower after a change.
set(DLTRAIN_UNIT_SIZE 32 CACHE STRING "Most sources of a library that are compiled as one file")
option(DLTRAIN_FUZZ "Build tests/fuzz with libFuzzer (needs clang) instead of as replay tests" OFF)
set(DLTRAIN_CUDA AUTO CACHE STRING "Build the CUDA engine: AUTO (when the toolkit is found), ON or OFF")
set_property(CACHE DLTRAIN_CUDA PROPERTY STRINGS AUTO ON OFF)
option(DLTRAIN_CUDNN_ATTENTION "CUDA engine with cuDNN's attention (needs scripts/cudnn_frontend.sh); OFF: own, much slower" ON)
set(DLTRAIN_SANITIZE "" CACHE STRING "Sanitizers, for instance address,undefined")

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source folder are hashed as relative paths, so that clones and worktrees share the cache.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()

# No -march=native: the executable runs on any x86-64 processor with AVX2, and the kernels select their instruction set at
# run time. No contraction: a*b+c rounds twice unless a kernel requests a fused multiply-add, so
# the instruction set selected at compile time does not change results.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
                    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ treats the sources of a unit as headers and warns about types with members of unnamed namespaces.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  # A larger heap of the compiler is collected less often, which saves 5 to 10 % of the time.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=500000> $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=200>)
endif()
if(DLTRAIN_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(NOT DLTRAIN_OPENMP)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas>)
endif()
add_link_options(LINKER:--as-needed)

set(DLTRAIN_TEST_TIMEOUT 600)  # seconds per test case of a test program
if(DLTRAIN_SANITIZE)
  set(DLTRAIN_TEST_TIMEOUT 3000)
  add_compile_options(-fsanitize=${DLTRAIN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DLTRAIN_SANITIZE})
  if(DLTRAIN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 gives false warnings about code that its sanitizers insert.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>
                        $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>
                        $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow>)
  endif()
endif()
if(DLTRAIN_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "DLTRAIN_FUZZ needs clang with libFuzzer: set CXX=clang++")
endif()
