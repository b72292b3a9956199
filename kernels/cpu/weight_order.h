// The weight of a convolution in a layout that oneDNN computes with, copied from OHWI. oneDNN's own
// reorders of these layouts were measured at 5 to 20 GB/s; they run before every convolution.
#pragma once

#include <optional>

#include <oneapi/dnnl/dnnl.hpp>

#include "cpu/matmul_tiles.h"
#include "tensor/shape.h"

namespace dltrain {

class WeightOrder {
 public:
  // From `weight`, an OHWI tensor in f32 or bf16 without groups, to `layout`. Empty where the
  // layout is none of those known here, or the processor has no AVX-512: then oneDNN's reorder is
  // left.
  static std::optional<WeightOrder> find(const TensorSpec& weight,
                                         const dnnl::memory::desc& layout);

  // All threads. `to` has the bytes of the layout; what it pads is zero.
  void run(const void* weight, void* to) const;

 private:
  WeightOrder(const TensorSpec& weight, int64_t panel_rows, bool input_major,
              const MatmulFunctions& functions);
  void run_panels(const void* weight, float* to) const;
  void run_tiles(const void* weight, float* to) const;

  int64_t out_, places_, in_;  // extents: O, H·W, I
  int64_t panel_rows_;         // of O, transposed together; 0: tiles of 16 × 16
  bool input_major_;           // tiles of one range of I follow each other
  const MatmulFunctions* functions_;
};

}  // namespace dltrain
