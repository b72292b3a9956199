// batch_norm, its gradient and its inference form over [rows, channels], and its statistics alone.
//
// Statistics are computed for fixed chunks of rows that fit in the cache: each chunk's mean and sum
// of squared deviations are merged in order and in double (Chan, Golub & LeVeque 1979). So x is
// read from memory once, without cancellation, and the result does not depend on the number of
// threads.
//
// The gradient of a fused relu recomputes the forward's value by the same arithmetic instead of
// reading y.
#include <algorithm>
#include <array>
#include <cmath>

#include "cpu/channel_rows.h"
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

// Arguments of batch_norm and its gradient, which has no residual among its inputs.
ChannelEpilogue form_of(const KernelRequest& request) {
  if (request.attributes.text("activation").empty()) return ChannelEpilogue::plain;
  return request.inputs.size() == 4 ? ChannelEpilogue::residual_relu : ChannelEpilogue::relu;
}

float channel_scale(float gamma, float variance, double epsilon) {
  return static_cast<float>(gamma / std::sqrt(variance + epsilon));
}

// The shape as rows of channels, and the chunks of rows.
struct ChannelRows {
  // Outputs from this size on are written with non-temporal stores (a core's caches have a few
  // MiB).
  static constexpr size_t kFarBytes = size_t{8} << 20;
  static constexpr int64_t kBlock = 64;  // channels for which results of chunks are combined

  explicit ChannelRows(const KernelRequest& request)
      : channels(request.inputs[0].shape[-1]),
        rows(request.inputs[0].shape.elements() / channels),
        chunk_rows(std::max<int64_t>(16, 16384 / channels)),
        chunks(ceil_div(rows, chunk_rows)),
        epsilon(request.attributes.number("epsilon", 1e-5)),
        far(request.outputs[0].bytes() >= kFarBytes && channels % 32 == 0) {}

  int64_t rows_of(int64_t chunk) const { return std::min(chunk_rows, rows - chunk * chunk_rows); }

  // Calls f(chunk, its first element, its rows) in parallel.
  template <typename F>
  void for_chunks(const F& f) const {
    parallel_each(chunks, 1, [&](int64_t c) { f(c, c * chunk_rows * channels, rows_of(c)); });
  }
  // The same from the last chunk to the first: the second pass finds the end of the first pass in
  // the cache.
  template <typename F>
  void for_chunks_back(const F& f) const {
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = end; c-- > begin;) f(c, c * chunk_rows * channels, rows_of(c));
    });
  }
  // Calls f(first channel, channels) for blocks of at most kBlock channels, in parallel.
  template <typename F>
  void for_channels(const F& f) const {
    const int64_t grain = std::max<int64_t>(1, 16384 / (kBlock * chunks));
    parallel_each(ceil_div(channels, kBlock), grain, [&](int64_t b) {
      f(b * kBlock, static_cast<size_t>(std::min(kBlock, channels - b * kBlock)));
    });
  }

  int64_t channels, rows, chunk_rows, chunks;
  double epsilon;
  bool far;
};

// A kernel run(rows, functions, bindings, workspace) with a workspace of `per_chunk` vectors of
// channels for every chunk, then `once` such vectors.
template <typename Run>
std::unique_ptr<Kernel> make_channel_kernel(const KernelRequest& request, ChannelEpilogue form,
                                            int64_t per_chunk, int64_t once, Run run) {
  if (request.inputs[0].shape.elements() == 0) return nullptr;
  const ChannelRows rows(request);
  const auto floats = static_cast<size_t>((per_chunk * rows.chunks + once) * rows.channels);
  return with_element_type(request.inputs[0].dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    return make_kernel(
        [rows, run, functions = channel_functions<T>(form)](const Bindings& b, Stream&) {
          run(rows, functions, b, static_cast<float*>(b.workspace));
        },
        floats * sizeof(float));
  });
}

}  // namespace

std::unique_ptr<Kernel> make_batch_norm(const KernelRequest& request) {
  const auto run = []<typename T>(const ChannelRows& s, const ChannelFunctions<T>& functions,
                                  const Bindings& b, float* workspace) {
    const T *x = b.input<T>(0), *residual = b.input<T>(3);
    const float *gamma = b.input<float>(1), *beta = b.input<float>(2);
    T* y = b.output<T>(0);
    float *mean_out = b.output<float>(1), *variance_out = b.output<float>(2);
    float *means = workspace, *squares_in = means + s.chunks * s.channels,
          *scale = squares_in + s.chunks * s.channels;
    s.for_chunks([&](int64_t c, int64_t at, int64_t rows) {
      functions.statistics(x + at, rows, s.channels, means + c * s.channels,
                           squares_in + c * s.channels);
    });
    s.for_channels([&](int64_t first, size_t channels) {
      std::array<double, ChannelRows::kBlock> mean{}, squares{};
      double count = 0;
      for (int64_t c = 0; c < s.chunks; ++c) {
        const auto rows = static_cast<double>(s.rows_of(c));
        const double share = rows / (count + rows), weight = count * share;
        const float *chunk_mean = means + c * s.channels + first,
                    *chunk_squares = squares_in + c * s.channels + first;
        for (size_t k = 0; k < channels; ++k) {
          const double step = static_cast<double>(chunk_mean[k]) - mean[k];
          mean[k] += step * share;
          squares[k] += static_cast<double>(chunk_squares[k]) + step * step * weight;
        }
        count += rows;
      }
      for (size_t k = 0; k < channels; ++k) {
        const auto channel = first + static_cast<int64_t>(k);
        mean_out[channel] = static_cast<float>(mean[k]);
        variance_out[channel] = static_cast<float>(squares[k] / static_cast<double>(s.rows));
        scale[channel] = channel_scale(gamma[channel], variance_out[channel], s.epsilon);
      }
    });
    s.for_chunks_back([&](int64_t, int64_t at, int64_t rows) {
      functions.normalise(x + at, {mean_out, scale, beta},
                          residual == nullptr ? nullptr : residual + at, rows, s.channels, y + at,
                          s.far);
    });
  };
  return make_channel_kernel(request, form_of(request), 2, 1, run);
}

std::unique_ptr<Kernel> make_batch_norm_backward(const KernelRequest& request) {
  const auto run = []<typename T>(const ChannelRows& s, const ChannelFunctions<T>& functions,
                                  const Bindings& b, float* workspace) {
    const T *x = b.input<T>(0), *dy = b.input<T>(1);
    const float *gamma = b.input<float>(2), *variance = b.input<float>(4);
    T* dx = b.output<T>(0);
    float *dgamma = b.output<float>(1), *dbeta = b.output<float>(2);
    float *sums = workspace, *weighted_sums = sums + s.chunks * s.channels,
          *scale = weighted_sums + s.chunks * s.channels, *slope = scale + s.channels,
          *offset = slope + s.channels;
    for (int64_t k = 0; k < s.channels; ++k) {
      scale[k] = channel_scale(gamma[k], variance[k], s.epsilon);
    }
    const ChannelAffine line{b.input<float>(3), scale, b.input<float>(5)};
    s.for_chunks([&](int64_t c, int64_t at, int64_t rows) {
      functions.gradient_sums(x + at, dy + at, line, rows, s.channels, sums + c * s.channels,
                              weighted_sums + c * s.channels);
    });
    s.for_channels([&](int64_t first, size_t channels) {
      std::array<double, ChannelRows::kBlock> sum{}, weighted{};
      for (int64_t c = 0; c < s.chunks; ++c) {
        const float *chunk_sum = sums + c * s.channels + first,
                    *chunk_weighted = weighted_sums + c * s.channels + first;
        for (size_t k = 0; k < channels; ++k) {
          sum[k] += static_cast<double>(chunk_sum[k]);
          weighted[k] += static_cast<double>(chunk_weighted[k]);
        }
      }
      const auto count = static_cast<double>(s.rows);
      for (size_t k = 0; k < channels; ++k) {
        const auto channel = first + static_cast<int64_t>(k);
        const double inverse = 1 / std::sqrt(variance[channel] + s.epsilon);
        const double factor = gamma[channel] * inverse;
        dbeta[channel] = static_cast<float>(sum[k]);
        dgamma[channel] = static_cast<float>(weighted[k] * inverse);
        slope[channel] = static_cast<float>(factor * weighted[k] * inverse * inverse / count);
        offset[channel] = static_cast<float>(factor * sum[k] / count);
      }
    });
    s.for_chunks_back([&](int64_t, int64_t at, int64_t rows) {
      functions.input_gradient(x + at, dy + at, line, slope, offset, rows, s.channels, dx + at,
                               s.far);
    });
  };
  return make_channel_kernel(request, form_of(request), 2, 3, run);
}

std::unique_ptr<Kernel> make_batch_norm_inference(const KernelRequest& request) {
  const auto run = []<typename T>(const ChannelRows& s, const ChannelFunctions<T>& functions,
                                  const Bindings& b, float* scale) {
    for (int64_t k = 0; k < s.channels; ++k) {
      scale[k] = channel_scale(b.input<float>(1)[k], b.input<float>(4)[k], s.epsilon);
    }
    const ChannelAffine line{b.input<float>(3), scale, b.input<float>(2)};
    s.for_chunks([&](int64_t, int64_t at, int64_t rows) {
      functions.normalise(b.input<T>(0) + at, line, nullptr, rows, s.channels, b.output<T>(0) + at,
                          s.far);
    });
  };
  return make_channel_kernel(request, ChannelEpilogue::plain, 0, 1, run);
}

}  // namespace dltrain
