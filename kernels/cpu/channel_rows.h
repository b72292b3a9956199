// Loops over [rows, channels] that group_norm takes from batch_norm.cpp, vectorised along the
// channels. They run in the calling thread.
#pragma once

#include <cstdint>

namespace dltrain {

// Mean and sum of squared deviations of each channel over a chunk of rows.
void channel_statistics(const float* x, int64_t rows, int64_t channels, float* mean,
                        float* squares);

// Σdy and Σdy·(x − mean) of each channel over a chunk of rows.
void channel_gradient_sums(const float* x, const float* dy, const float* mean, int64_t rows,
                           int64_t channels, float* sum_dy, float* sum_dy_x);

// y = (x − centre)·scale + shift, channel by channel.
void channel_normalise(const float* x, const float* centre, const float* scale, const float* shift,
                       int64_t rows, int64_t channels, float* y);

// dx = scale·dy − slope·(x − mean) − offset, channel by channel.
void channel_input_gradient(const float* x, const float* dy, const float* mean, const float* scale,
                            const float* slope, const float* offset, int64_t rows, int64_t channels,
                            float* dx);

}  // namespace dltrain
