# What plug-ins (lib/nn/plugin.h) are built with: the headers of the libraries up to lib/nn, installed as a CMake package.
#
# Run as a script (cmake -DHEADERS=… -DOUTPUT=… -P plugins.cmake) it writes nn/plugin_abi.h: a hash of the headers, by
# which a program knows the plug-ins that were built with others.
if(CMAKE_SCRIPT_MODE_FILE)
  foreach(header ${HEADERS})
    file(SHA256 ${header} hash)
    string(APPEND hashes ${hash})
  endforeach()
  string(SHA256 abi "${hashes}")
  string(SUBSTRING ${abi} 0 16 abi)
  file(WRITE ${OUTPUT} "// Written by cmake/plugins.cmake.\n#pragma once\n\n#define DLTRAIN_PLUGIN_ABI 0x${abi}ULL\n")
  return()
endif()

set(headers "")
foreach(folder base config tensor device comm ops graph nn)
  file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/${folder}/*.h)
  list(APPEND headers ${found})
endforeach()
set(plugin_abi ${CMAKE_BINARY_DIR}/generated/nn/plugin_abi.h)
add_custom_command(OUTPUT ${plugin_abi} DEPENDS ${headers} ${CMAKE_CURRENT_LIST_FILE}
  COMMAND ${CMAKE_COMMAND} "-DHEADERS=${headers}" -DOUTPUT=${plugin_abi} -P ${CMAKE_CURRENT_LIST_FILE} VERBATIM)
add_custom_target(dltrain_plugin_abi DEPENDS ${plugin_abi})
add_dependencies(dltrain_nn dltrain_plugin_abi)

install(TARGETS dltrain EXPORT dltrainTargets RUNTIME)
install(EXPORT dltrainTargets NAMESPACE dltrain:: DESTINATION lib/cmake/dltrain)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/dltrainConfig.cmake DESTINATION lib/cmake/dltrain)
install(FILES ${plugin_abi} DESTINATION include/dltrain/nn)
install(FILES ${CMAKE_SOURCE_DIR}/kernels/shared/make_kernel.h DESTINATION include/dltrain/shared)
foreach(header ${headers})
  get_filename_component(folder ${header} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  install(FILES ${header} DESTINATION include/dltrain/${folder})
endforeach()
