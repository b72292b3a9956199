# dltrain_units(RESULT FOLDER SOURCES…): writes files that include up to DLTRAIN_UNIT_SIZE sources of FOLDER each and are
# compiled in their place, because most of the compile time of a source is spent on shared headers. RESULT is the list of
# files to compile. The includes are relative to FOLDER, so that all clones share ccache's entries. Sources that include Highway's
# foreach_target.h are compiled separately because they include themselves.
function(dltrain_units result folder)
  set(single "")
  set(joined "")
  foreach(source ${ARGN})
    file(STRINGS ${source} alone REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
    if(alone OR DLTRAIN_UNIT_SIZE EQUAL 1)
      list(APPEND single ${source})
    else()
      file(RELATIVE_PATH source ${folder} ${source})
      list(APPEND joined ${source})
    endif()
  endforeach()
  list(LENGTH joined count)
  math(EXPR units "(${count} + ${DLTRAIN_UNIT_SIZE} - 1) / ${DLTRAIN_UNIT_SIZE}")
  set(number 0)
  while(joined)
    # Units of one library have equal sizes.
    math(EXPR size "(${count} * (${number} + 1)) / ${units} - (${count} * ${number}) / ${units}")
    list(SUBLIST joined 0 ${size} unit)
    list(REMOVE_ITEM joined ${unit})
    list(TRANSFORM unit REPLACE "(.+)" "#include \"\\1\"\n")
    string(JOIN "" text ${unit})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/units/${UNIT_NAME}_${number}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND single ${file})
    math(EXPR number "${number} + 1")
  endwhile()
  set(${result} ${single} PARENT_SCOPE)
endfunction()

# dltrain_build_fast(TARGET): uses -O1 in a release build, for code that takes no relevant part of the run time. It compiles in
# two thirds of the time of -O3.
function(dltrain_build_fast target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# dltrain_library(NAME [FAST_BUILD] [HOT …] [DEPENDS …] [LINK …]): adds a static library of all *.cpp files of one folder.
# Includes are written from the parent folder: #include "tensor/shape.h". FAST_BUILD: see dltrain_build_fast; HOT names
# the sources, without .cpp and perhaps with *, that are compiled with -O3 all the same.
function(dltrain_library name)
  cmake_parse_arguments(ARG "FAST_BUILD" "" "HOT;DEPENDS;LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  string(REPLACE "/" "_" target "dltrain_${name}")
  if(sources)
    if(ARG_HOT)
      list(TRANSFORM ARG_HOT REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/${name}/\\1.cpp")
      file(GLOB hot CONFIGURE_DEPENDS ${ARG_HOT})
      list(REMOVE_ITEM sources ${hot})
      set(UNIT_NAME ${name}_hot)
      dltrain_units(hot ${CMAKE_CURRENT_SOURCE_DIR} ${hot})
      set_source_files_properties(${hot} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
    endif()
    set(UNIT_NAME ${name})
    dltrain_units(sources ${CMAKE_CURRENT_SOURCE_DIR} ${sources})
    add_library(${target} STATIC ${hot} ${sources})
    if(ARG_FAST_BUILD)
      dltrain_build_fast(${target})
    endif()
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(dep ${ARG_DEPENDS})
    target_link_libraries(${target} ${scope} dltrain_${dep})
  endforeach()
  target_link_libraries(${target} ${scope} ${ARG_LINK})
endfunction()

# dltrain_test(NAME [LINK …] [LABELS …]): adds one test program of all *.cpp files in tests/NAME, and one ctest
# entry per case. Cases tagged [.long] are not run by default and have the ctest label `long`
# (scripts/test.sh --full runs them). The label `threads` marks the tests run under the thread sanitizer.
function(dltrain_test name)
  cmake_parse_arguments(ARG "" "" "LINK;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  set(UNIT_NAME test_${name})
  set(DLTRAIN_UNIT_SIZE 16)  # names of tests are not unique within a folder
  dltrain_units(units ${CMAKE_CURRENT_SOURCE_DIR} ${sources})
  add_executable(test_${name} ${units})
  target_include_directories(test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  dltrain_build_fast(test_${name})
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK} dltrain_test_main)
  target_compile_definitions(test_${name} PRIVATE DLTRAIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  # A test that is skipped says so in a WARN, which Catch2 indents.
  set(properties TIMEOUT ${DLTRAIN_TEST_TIMEOUT}
    FAIL_REGULAR_EXPRESSION "No tests ran" SKIP_REGULAR_EXPRESSION "  Skipped:")
  if(ARG_LABELS)
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  catch_discover_tests(test_${name} TEST_PREFIX "${name}: " PROPERTIES ${properties})
  foreach(source ${sources})
    file(STRINGS ${source} long_cases REGEX "\\[\\.long\\]")
    if(long_cases)
      catch_discover_tests(test_${name} TEST_SPEC "[long]" TEST_PREFIX "${name}: "
                           PROPERTIES ${properties} TIMEOUT 3600 LABELS long)
      break()
    endif()
  endforeach()
endfunction()

# dltrain_bundled(TARGET): an installed TARGET searches its libraries in ../lib/dltrain first, where no other program
# finds them. It uses DT_RPATH, not DT_RUNPATH, so that the libraries in a package also find each other.
function(dltrain_bundled target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/dltrain")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

# dltrain_script_tests(): adds one ctest entry for every tests/scripts/test_*.sh. Each gets the executable
# as $DLTRAIN, the sources as $SOURCE_DIR and the build folder as $BUILD_DIR; exit status 77 means skipped.
function(dltrain_script_tests)
  file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/scripts/test_*.sh)
  foreach(script ${scripts})
    get_filename_component(name ${script} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${name})
    add_test(NAME "scripts: ${name}" COMMAND bash ${script})
    set_tests_properties("scripts: ${name}" PROPERTIES
      TIMEOUT 600 SKIP_RETURN_CODE 77
      ENVIRONMENT "DLTRAIN=$<TARGET_FILE:dltrain>;SOURCE_DIR=${CMAKE_SOURCE_DIR};BUILD_DIR=${CMAKE_BINARY_DIR}")
  endforeach()
endfunction()

# dltrain_python_tests(FOLDER): adds one ctest entry for every test method of tests/FOLDER/test_*.py (Python's
# unittest; the standard library, and python3-yaml in test_cluster.py), named after the method. tests/apps/support.py
# is on the module path.
# Methods test_long_* have the label `long`.
function(dltrain_python_tests folder)
  find_program(DLTRAIN_PYTHON python3)
  if(NOT DLTRAIN_PYTHON)
    message(FATAL_ERROR "The tests of the executable need python3: apt-get install python3")
  endif()
  file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/test_*.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${scripts})
  foreach(script ${scripts})
    get_filename_component(file ${script} NAME_WE)
    string(REGEX REPLACE "^test_" "" file ${file})
    file(STRINGS ${script} methods REGEX "^    def test_[a-z0-9_]+\\(self\\)")
    foreach(method ${methods})
      string(REGEX REPLACE "^    def (test_[a-z0-9_]+).*" "\\1" method ${method})
      string(REGEX REPLACE "^test_" "" name ${method})
      string(REPLACE "_" " " name ${name})
      set(name "${folder}: ${file}: ${name}")
      add_test(NAME ${name} COMMAND ${DLTRAIN_PYTHON} ${script} -k "*.${method}")
      set_tests_properties(${name} PROPERTIES TIMEOUT 600
        FAIL_REGULAR_EXPRESSION "Ran 0 tests" SKIP_REGULAR_EXPRESSION "OK \\(skipped="
        ENVIRONMENT "DLTRAIN=$<TARGET_FILE:dltrain>;SOURCE_DIR=${CMAKE_SOURCE_DIR};PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}/apps")
      if(method MATCHES "^test_long_")
        set_tests_properties(${name} PROPERTIES LABELS long TIMEOUT 3600)
      endif()
    endforeach()
  endforeach()
endfunction()

# dltrain_fuzz_targets(LINK …): adds one program for every tests/fuzz/*.cpp that defines
# LLVMFuzzerTestOneInput. With DLTRAIN_FUZZ (clang) it is a libFuzzer program; otherwise
# tests/fuzz/driver/replay.cpp provides main(), and ctest runs it on its seeds in
# tests/fuzz/seeds/NAME and a fixed number of mutations of them.
function(dltrain_fuzz_targets)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*.cpp)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/seeds/${name})
    add_executable(fuzz_${name} ${source})
    target_link_libraries(fuzz_${name} PRIVATE ${ARG_LINK})
    if(DLTRAIN_FUZZ)
      target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    else()
      target_sources(fuzz_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/driver/replay.cpp)
      add_test(NAME "fuzz: ${name}, seeds and mutations" COMMAND fuzz_${name} ${seeds})
      set_tests_properties("fuzz: ${name}, seeds and mutations" PROPERTIES TIMEOUT 300)
    endif()
  endforeach()
endfunction()
