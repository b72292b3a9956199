# The git revision of the sources, for `dltrain version` and checkpoints. It is determined at every
# build, but the file is rewritten (and one object recompiled) only if it has changed.
#
# Run as a script (cmake -DSOURCE_DIR=… -DOUTPUT=… -P revision.cmake) it writes OUTPUT. When included,
# it adds that file to dltrain_base.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
                  WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE revision ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(revision unknown)
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[// Written by cmake/revision.cmake.
#include "base/version.h"

namespace dltrain {
std::string_view git_revision() { return "@revision@"; }
}  // namespace dltrain
]] @ONLY)
  return()
endif()

set(revision_source ${CMAKE_BINARY_DIR}/generated/revision.cpp)
add_custom_target(dltrain_revision BYPRODUCTS ${revision_source} COMMENT ""
                  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${revision_source}
                          -P ${CMAKE_CURRENT_LIST_FILE} VERBATIM)
target_sources(dltrain_base PRIVATE ${revision_source})
add_dependencies(dltrain_base dltrain_revision)
