# Tables of components are generated when the program is built from the files that define them. A definition is found by
# its form, so a new component needs no other place.

# dltrain_generated_table(OUTPUT FOLDER PATTERN DECLARATION ENTRY TEXT): writes TEXT to the generated file OUTPUT, in which
# %DECLARATIONS% and %ENTRIES% stand for a DECLARATION and an ENTRY for each line of FOLDER's *.cpp files that PATTERN
# matches, in the order of files and lines. In these two % stands for the name, PATTERN's group.
function(dltrain_generated_table output folder pattern declaration entry text)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  file(CONFIGURE OUTPUT ${output}.in CONTENT "${text}" @ONLY)
  add_custom_command(OUTPUT ${output} DEPENDS ${sources} ${output}.in ${CMAKE_SOURCE_DIR}/cmake/write_table.cmake
    COMMAND ${CMAKE_COMMAND} "-DSOURCES=${sources}" "-DPATTERN=${pattern}" "-DDECLARATION=${declaration}" "-DENTRY=${entry}"
      -DOUTPUT=${output} -P ${CMAKE_SOURCE_DIR}/cmake/write_table.cmake
    VERBATIM)
endfunction()

# dltrain_table(LIBRARY FUNCTION HEADER ROW PATTERN FOLDER): adds a source to LIBRARY that defines
#     std::vector<ROW> FUNCTION()
# with the results of all functions "ROW PATTERN() {" of a folder. HEADER defines ROW.
function(dltrain_table library function header row pattern folder)
  set(output ${CMAKE_BINARY_DIR}/generated/${function}.cpp)
  dltrain_generated_table(${output} ${folder} "^${row} (${pattern})\\(\\) {" "${row} %()" "%()"
"#include \"${header}\"

namespace dltrain {

%DECLARATIONS%
std::vector<${row}> ${function}() {
  return {%ENTRIES%};
}

}  // namespace dltrain
")
  target_sources(${library} PRIVATE ${output})
endfunction()

# dltrain_op_table(): generates ops/definitions.h, which declares every OpDef of lib/ops and lists them in kOps.
function(dltrain_op_table)
  set(output ${CMAKE_BINARY_DIR}/generated/ops/definitions.h)
  dltrain_generated_table(${output} ops "^constinit const OpDef (k[A-Za-z0-9]+Op)" "extern const OpDef %" "&%"
"#pragma once
#include \"ops/op.h\"

namespace dltrain {

%DECLARATIONS%
inline constexpr const OpDef* kOps[] = {%ENTRIES%};

}  // namespace dltrain
")
  target_sources(dltrain_ops PRIVATE ${output})
endfunction()
