// Checks between passes, for those who write passes.
#pragma once

#include "graph/graph.h"

namespace dltrain {

// verify_graph() with assertions (debug and sanitizer builds), so that an error names its pass.
// Without them a third of the time of a plan is saved: the graph that the last pass leaves is
// verified anyway (compile/step_graph.cpp, graph/program.cpp).
inline void verify_pass([[maybe_unused]] const Graph& graph) {
#ifndef NDEBUG
  verify_graph(graph);
#endif
}

}  // namespace dltrain
