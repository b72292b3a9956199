// Shared by the kernels of conv2d with samples in the vector lanes (see conv2d_lanes.cpp).
#pragma once

#include "ops/conv2d.h"
#include "ops/kernel.h"

namespace dltrain {

inline constexpr int64_t kMaxLaneWindow = 256;  // elements of a window

struct LaneConvolution : Conv2dSizes {
  bool relu;

  int64_t window() const { return kernel[0] * kernel[1] * in_channels; }
};

LaneConvolution lane_convolution(const Shape& x, const Shape& w, const Shape& y,
                                 const Attributes& attributes);

// Returns true if samples fill the vectors. The number of channels up to which this is faster than
// oneDNN depends on the direction: each maker has a measured bound.
bool lanes_suit(const KernelRequest& request, const LaneConvolution& g);

// Returns the number of samples computed together: a full tile of vectors.
int64_t lane_block();

// One image row of a block of samples: [samples, …, row_length] → [row_length, block]; absent
// samples of the last block become 0.
void gather_lane_row(const float* x, int64_t samples, int64_t sample_stride, int64_t row_length,
                     float* to);

// Transposes all rows of an image tensor into [block][height][width·channels][sample], within a
// border of padded_height rows of padded_row floats.
void gather_lane_image(const float* x, int64_t samples, int64_t height, int64_t row_length,
                       int64_t padded_height, int64_t padded_row, int64_t top, int64_t left,
                       float* to);

}  // namespace dltrain
