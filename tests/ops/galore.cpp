#include "cpu/engine.h"
#include "ops/projections.h"
#include "reference/engine.h"

using namespace dltrain;

TEST_CASE("a projection has the leading singular vectors of the shorter side, with fixed signs") {
  check_projections(reference_engine());
  check_projections(cpu_engine());
}

TEST_CASE("a projection of a gradient with few singular vectors has those") {
  check_low_rank(reference_engine());
}

TEST_CASE("subspace iteration finds the subspace of the singular vectors") {
  check_subspace_iteration(reference_engine());
}
