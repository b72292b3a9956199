// Functions that the ops of several optimizers use.
#pragma once

#include <span>
#include <vector>

#include "base/host_device.h"
#include "ops/op.h"
#include "ops/placement.h"

namespace dltrain {

// Elements of a block of moments in 8 bits, as bitsandbytes has it.
inline constexpr int64_t kMomentBlock = 256;
inline int64_t moment_blocks(int64_t elements) {
  return (elements + kMomentBlock - 1) / kMomentBlock;
}

// Checks that the attributes group and rounding fit the number of parameters, and that moments in
// 8 bits have a scale a block.
void check_update(SpecSpan inputs, const Attributes& attributes);

// A tensor as Adafactor sees it, a matrix, and what an op is given of it: the elements
// [begin, begin + count) of a shard, which is the matrix or, with tensor and expert parallelism,
// some of its rows or of its columns.
struct AdafactorMatrix {
  // Rows or columns of the shard that are neighbours in the matrix too, where they begin.
  struct Run {
    int64_t in_shard, first, count;
  };
  // Rows or columns of a shard of the matrix; all of them, one run.
  struct Axis {
    static constexpr int kMostRuns = 6;
    Run runs[kMostRuns];
    int run_count = 1;

    DLTRAIN_HD int64_t count() const {
      return runs[run_count - 1].in_shard + runs[run_count - 1].count;
    }
    DLTRAIN_HD int64_t in_matrix(int64_t i) const {
      int r = 0;
      while (i >= runs[r].in_shard + runs[r].count) ++r;
      return runs[r].first + i - runs[r].in_shard;
    }
    // −1 if the shard lacks it.
    DLTRAIN_HD int64_t in_shard(int64_t i) const {
      for (int r = 0; r < run_count; ++r) {
        const int64_t at = i - runs[r].first;
        if (at >= 0 && at < runs[r].count) return runs[r].in_shard + at;
      }
      return -1;
    }
  };

  bool factored;
  int64_t rows, columns;  // of the matrix; 1 row where not factored
  int64_t begin, count;
  Axis row, column;  // of the shard, where factored

  // The number of sums that the op adafactor_sums makes of the tensor.
  int64_t sums() const { return 1 + (factored ? rows + columns : 0); }
};
// `p`: the shape of the op's parameter `tensor`.
AdafactorMatrix adafactor_matrix(const Attributes& attributes, size_t tensor, const Shape& p);

// The attribute `range` of a tensor of shape `whole`, of which the op is given the elements from
// `begin` on of a shard: the ranges of one dimension, or none for the whole tensor.
std::vector<int64_t> adafactor_range(const Shape& whole, int64_t begin, int dimension,
                                     std::span<const CutRange> ranges);

}  // namespace dltrain
