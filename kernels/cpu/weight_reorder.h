// Copies the weight of a convolution from OHWI to a layout that oneDNN computes with, before every
// convolution. oneDNN's own reorders of these layouts were measured at only 5 to 20 GB/s.
#pragma once

#include <optional>

#include <oneapi/dnnl/dnnl.hpp>

#include "cpu/matmul_tiles.h"
#include "tensor/shape.h"

namespace dltrain {

class WeightReorder {
 public:
  // From `weight`, an OHWI tensor in f32 or bf16 without groups, to `layout`. Returns nullopt for
  // unknown layouts or processors without AVX-512; use oneDNN's reorder then.
  static std::optional<WeightReorder> find(const TensorSpec& weight,
                                           const dnnl::memory::desc& layout);

  // Runs with all threads. `to` has the bytes of the layout; padding is set to zero.
  void run(const void* weight, void* to) const;

 private:
  WeightReorder(const TensorSpec& weight, int64_t panel_rows, bool input_major,
                const MatmulFunctions& functions);
  void run_panels(const void* weight, float* to) const;
  void run_tiles(const void* weight, float* to) const;

  int64_t out_, kernel_size_, in_;  // extents: O, H·W, I
  int64_t panel_rows_;              // of O, transposed together; 0: tiles of 16 × 16
  bool input_major_;                // tiles of one range of I follow each other
  const MatmulFunctions* functions_;
};

}  // namespace dltrain
