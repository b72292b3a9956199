# The CMake package of dltrain, with which plug-ins are built (dltrain/nn/plugin.h):
#
#   find_package(dltrain REQUIRED)
#   add_library(snake MODULE snake.cpp)
#   target_link_libraries(snake PRIVATE dltrain::dltrain)
include(CMakeFindDependencyMacro)
find_dependency(fmt)
include(${CMAKE_CURRENT_LIST_DIR}/dltrainTargets.cmake)
get_filename_component(dltrain_prefix ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
set_target_properties(dltrain::dltrain PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${dltrain_prefix}/include/dltrain
  INTERFACE_COMPILE_FEATURES cxx_std_20
  INTERFACE_LINK_LIBRARIES fmt::fmt)
