// group_norm and its gradient, vectorised along the channels. As in batch_norm.cpp, statistics come
// from fixed chunks of rows (here of one sample), merged in order and in double: results do not
// depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "cpu/channel_rows.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct GroupRows {
  explicit GroupRows(const KernelRequest& request)
      : samples(request.inputs[0].shape[0]),
        channels(request.inputs[0].shape[-1]),
        rows(request.inputs[0].shape.elements() / samples / channels),
        groups(request.attributes.integer("groups", 1)),
        width(channels / groups),
        chunk_rows(std::max<int64_t>(16, 16384 / channels)),
        chunks(ceil_div(rows, chunk_rows)),
        epsilon(request.attributes.number("epsilon")) {}

  // Calls f(sample, chunk, first element of the chunk, rows of the chunk) in parallel.
  template <typename F>
  void for_chunks(const F& f) const {
    parallel_each(samples * chunks, 1, [&](int64_t i) {
      const int64_t sample = i / chunks, chunk = i % chunks;
      f(sample, i, (sample * rows + chunk * chunk_rows) * channels, rows_of(chunk));
    });
  }
  // Calls f(sample, group) in parallel.
  template <typename F>
  void for_groups(const F& f) const {
    const int64_t grain = std::max<int64_t>(1, 2048 / (channels * chunks));
    parallel_each(samples, grain, [&](int64_t n) {
      for (int64_t g = 0; g < groups; ++g) f(n, g);
    });
  }
  int64_t rows_of(int64_t chunk) const { return std::min(chunk_rows, rows - chunk * chunk_rows); }

  int64_t samples, channels, rows, groups, width, chunk_rows, chunks;
  double epsilon;
  ChannelFunctions<float> functions = channel_functions<float>(ChannelEpilogue::plain);
};

// Vectors of channels in the workspace: two for every chunk, then several for every sample.
struct GroupWorkspace {
  GroupWorkspace(const GroupRows& s, void* workspace)
      : sample_floats(s.samples * s.channels),
        of_chunks{static_cast<float*>(workspace),
                  static_cast<float*>(workspace) + s.chunks * sample_floats},
        samples_at(of_chunks[1] + s.chunks * sample_floats) {}
  float* of_samples(int64_t i) const { return samples_at + i * sample_floats; }

  int64_t sample_floats;
  float *of_chunks[2], *samples_at;
};

// A kernel run(rows, bindings, workspace) with `per_sample` vectors of channels for every sample.
template <typename Run>
std::unique_ptr<Kernel> make_group_kernel(const KernelRequest& request, int64_t per_sample,
                                          Run run) {
  if (!computes_in_f32(request) || request.inputs[0].shape.elements() == 0) return nullptr;
  const GroupRows s(request);
  const int64_t floats = (2 * s.chunks + per_sample) * s.samples * s.channels;
  return make_kernel(
      [s, run](const Bindings& b, Stream&) { run(s, b, GroupWorkspace(s, b.workspace)); },
      static_cast<size_t>(floats) * sizeof(float));
}

}  // namespace

std::unique_ptr<Kernel> make_group_norm(const KernelRequest& request) {
  const auto run = [](const GroupRows& s, const Bindings& b, const GroupWorkspace& workspace) {
    const float *x = b.input<float>(0), *weight = b.input<float>(1), *bias = b.input<float>(2);
    float *means = workspace.of_chunks[0], *squares_in = workspace.of_chunks[1];
    float *centre = workspace.of_samples(0), *scale = workspace.of_samples(1);
    float* shift = workspace.of_samples(2);  // the bias, or zeros
    for (int64_t k = 0; k < s.channels; ++k) shift[k] = bias == nullptr ? 0 : bias[k];
    s.for_chunks([&](int64_t, int64_t chunk, int64_t at, int64_t rows) {
      s.functions.statistics(x + at, rows, s.channels, means + chunk * s.channels,
                             squares_in + chunk * s.channels);
    });
    // Merges the chunks' statistics of a group (Chan, Golub & LeVeque 1979).
    s.for_groups([&](int64_t n, int64_t g) {
      double count = 0, mean = 0, squares = 0;
      for (int64_t c = 0; c < s.chunks; ++c) {
        const auto rows = static_cast<double>(s.rows_of(c));
        const int64_t first = (n * s.chunks + c) * s.channels;
        for (int64_t k = g * s.width; k < (g + 1) * s.width; ++k) {
          const double step = means[first + k] - mean;
          mean += step * rows / (count + rows);
          squares += squares_in[first + k] + step * step * count * rows / (count + rows);
          count += rows;
        }
      }
      const double rstd = 1 / std::sqrt(squares / count + s.epsilon);
      b.output<float>(1)[n * s.groups + g] = static_cast<float>(mean);
      b.output<float>(2)[n * s.groups + g] = static_cast<float>(rstd);
      for (int64_t k = g * s.width; k < (g + 1) * s.width; ++k) {
        centre[n * s.channels + k] = static_cast<float>(mean);
        scale[n * s.channels + k] = static_cast<float>(weight == nullptr ? rstd : rstd * weight[k]);
      }
    });
    s.for_chunks([&](int64_t n, int64_t, int64_t at, int64_t rows) {
      const ChannelAffine line{centre + n * s.channels, scale + n * s.channels, shift};
      s.functions.normalise(x + at, line, nullptr, rows, s.channels, b.output<float>(0) + at,
                            false);
    });
  };
  return make_group_kernel(request, 3, run);
}

// With Σ over the pixels of a channel: a = Σdy, b = Σdy·(x − mean). Then dbias = Σ_n a, dweight =
// Σ_n b·rstd, and dx = rstd·(dy·weight − mean(dy·weight) − x̂·mean(dy·weight·x̂)).
std::unique_ptr<Kernel> make_group_norm_backward(const KernelRequest& request) {
  const auto run = [](const GroupRows& s, const Bindings& b, const GroupWorkspace& workspace) {
    const float *x = b.input<float>(0), *dy = b.input<float>(1), *weights = b.input<float>(2);
    const float *mean = b.input<float>(3), *rstd_in = b.input<float>(4);
    float *dweight_out = b.output<float>(1), *dbias_out = b.output<float>(2);
    float *sums = workspace.of_chunks[0], *weighted_sums = workspace.of_chunks[1];
    float *centre = workspace.of_samples(0), *scale = workspace.of_samples(1),
          *slope = workspace.of_samples(2), *offset = workspace.of_samples(3),
          *part_dweight = workspace.of_samples(4), *part_dbias = workspace.of_samples(5);
    const auto weight = [&](int64_t k) { return weights == nullptr ? 1.0f : weights[k]; };
    s.for_groups([&](int64_t n, int64_t g) {
      std::fill_n(centre + n * s.channels + g * s.width, s.width, mean[n * s.groups + g]);
    });
    s.for_chunks([&](int64_t n, int64_t chunk, int64_t at, int64_t rows) {
      const ChannelAffine line{centre + n * s.channels, nullptr, nullptr};
      s.functions.gradient_sums(x + at, dy + at, line, rows, s.channels, sums + chunk * s.channels,
                                weighted_sums + chunk * s.channels);
    });
    s.for_groups([&](int64_t n, int64_t g) {
      const double rstd = rstd_in[n * s.groups + g];
      double plain = 0, product = 0;  // of dy·weight, and of dy·weight·(x − mean)
      for (int64_t k = g * s.width; k < (g + 1) * s.width; ++k) {
        double sum = 0, weighted = 0;
        for (int64_t c = 0; c < s.chunks; ++c) {
          sum += sums[(n * s.chunks + c) * s.channels + k];
          weighted += weighted_sums[(n * s.chunks + c) * s.channels + k];
        }
        part_dbias[n * s.channels + k] = static_cast<float>(sum);
        part_dweight[n * s.channels + k] = static_cast<float>(weighted * rstd);
        plain += sum * weight(k);
        product += weighted * weight(k);
      }
      const auto count = static_cast<double>(s.rows * s.width);
      for (int64_t k = g * s.width; k < (g + 1) * s.width; ++k) {
        const int64_t at = n * s.channels + k;
        scale[at] = static_cast<float>(rstd * weight(k));
        slope[at] = static_cast<float>(rstd * rstd * rstd * product / count);
        offset[at] = static_cast<float>(rstd * plain / count);
      }
    });
    s.for_chunks([&](int64_t n, int64_t, int64_t at, int64_t rows) {
      const int64_t c = n * s.channels;
      s.functions.input_gradient(x + at, dy + at, {centre + c, scale + c, nullptr}, slope + c,
                                 offset + c, rows, s.channels, b.output<float>(0) + at, false);
    });
    for (int64_t k = 0; dweight_out != nullptr && k < s.channels; ++k) {
      double dweight = 0, dbias = 0;
      for (int64_t n = 0; n < s.samples; ++n) {
        dweight += part_dweight[n * s.channels + k];
        dbias += part_dbias[n * s.channels + k];
      }
      dweight_out[k] = static_cast<float>(dweight);
      dbias_out[k] = static_cast<float>(dbias);
    }
  };
  return make_group_kernel(request, 6, run);
}

}  // namespace dltrain
