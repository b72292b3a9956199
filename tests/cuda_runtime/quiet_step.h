// The rules for every captured step over the fake runtime.
#pragma once

#include "catch.h"
#include "cuda_runtime/fake_runtime.h"

namespace dltrain {

// Between two steps nothing is allocated, made, waited for or copied from pageable memory, and all
// work is in graphs.
inline void check_quiet(const fake_cuda::Counts& before, const fake_cuda::Counts& after) {
  CHECK(after.allocations == before.allocations);
  CHECK(after.frees == before.frees);
  CHECK(after.made == before.made);
  CHECK(after.synchronisations == before.synchronisations);
  CHECK(after.pageable_copies == before.pageable_copies);
  CHECK(after.launches == before.launches);
  CHECK(after.graph_launches > before.graph_launches);
}

}  // namespace dltrain
