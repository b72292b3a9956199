# Small engines that the plug-in loader is tested with: libdltrain_<name>.so beside the test program.
foreach(name fake other_abi no_entry no_device broken)
  add_library(dltrain_plugin_${name} MODULE ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  set_target_properties(dltrain_plugin_${name} PROPERTIES OUTPUT_NAME dltrain_${name})
  target_link_libraries(dltrain_plugin_${name} PRIVATE dltrain_device)
  add_dependencies(test_device dltrain_plugin_${name})
endforeach()
# A symbol that no library has: dlopen refuses it as it refuses a missing vendor library.
target_link_options(dltrain_plugin_broken PRIVATE LINKER:--unresolved-symbols=ignore-all)
