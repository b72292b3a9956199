// Loops over [rows, channels] of batch_norm and group_norm, vectorised along the channels. They run
// in the calling thread. x, y and their gradients are f32, bf16 or f16; values per channel are f32.
#pragma once

#include <cstdint>
#include <tuple>

#include "tensor/low_precision.h"

namespace dltrain {

// The linear function of the forward: y = (x − centre)·scale + shift.
struct ChannelAffine {
  const float *centre, *scale, *shift;
};

// Operations after the line: nothing, relu, or a residual and then relu.
enum class ChannelEpilogue : uint8_t { plain, relu, residual_relu };

template <typename T>
struct ChannelFunctions {
  // Mean and sum of squared deviations of each channel over a chunk of rows.
  void (*statistics)(const T* x, int64_t rows, int64_t channels, float* mean, float* squares);
  // y = (x − centre)·scale + shift, channel by channel; then the form's operations. `residual` is
  // read only if the form has one. `far`: y is written with non-temporal stores; its address and
  // rows must be multiples of a vector.
  void (*normalise)(const T* x, const ChannelAffine& line, const T* residual, int64_t rows,
                    int64_t channels, T* y, bool far);
  // Σdy and Σdy·(x − centre) of each channel over a chunk of rows. With relu, dy counts only where
  // the line is above 0; without, scale and shift are not read.
  void (*gradient_sums)(const T* x, const T* dy, const ChannelAffine& line, int64_t rows,
                        int64_t channels, float* sum_dy, float* sum_dy_x);
  // dx = scale·dy − slope·(x − centre) − offset, channel by channel; dy and `far` as above.
  void (*input_gradient)(const T* x, const T* dy, const ChannelAffine& line, const float* slope,
                         const float* offset, int64_t rows, int64_t channels, T* dx, bool far);
};

using AllChannelFunctions =
    std::tuple<ChannelFunctions<float>, ChannelFunctions<Bf16>, ChannelFunctions<F16>>;
AllChannelFunctions all_channel_functions(ChannelEpilogue form);

// Returns the functions for elements of type T: float, Bf16 or F16. Gradients ignore a residual.
template <typename T>
ChannelFunctions<T> channel_functions(ChannelEpilogue form) {
  return std::get<ChannelFunctions<T>>(all_channel_functions(form));
}

}  // namespace dltrain
