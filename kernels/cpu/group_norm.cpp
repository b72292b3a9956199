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

class GroupKernel {
 public:
  explicit GroupKernel(const KernelRequest& request)
      : samples_(request.inputs[0].shape[0]),
        channels_(request.inputs[0].shape[-1]),
        rows_(request.inputs[0].shape.elements() / samples_ / channels_),
        groups_(request.attributes.integer("groups", 1)),
        width_(channels_ / groups_),
        chunk_rows_(std::max<int64_t>(16, 16384 / channels_)),
        chunks_(ceil_div(rows_, chunk_rows_)),
        epsilon_(request.attributes.number("epsilon")) {
    std::vector<float> neutral(static_cast<size_t>(2 * channels_), 0);
    std::fill_n(neutral.begin(), channels_, 1.0f);
    neutral_ = std::make_shared<const std::vector<float>>(std::move(neutral));
  }

 protected:
  // Returns the weight or bias; if absent, a vector of ones or zeros.
  const float* channel_input(const Bindings& bindings, size_t i, int64_t neutral) const {
    if (bindings.inputs[i] != nullptr) return input<const float>(bindings, i);
    return neutral_->data() + (1 - neutral) * channels_;
  }

  // Calls f(sample, chunk, first element of the chunk, rows of the chunk) in parallel.
  template <typename F>
  void for_chunks(const F& f) const {
    parallel_for(samples_ * chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t sample = i / chunks_, first = i % chunks_ * chunk_rows_;
        f(sample, i, (sample * rows_ + first) * channels_, std::min(chunk_rows_, rows_ - first));
      }
    });
  }
  template <typename F>
  void for_samples(const F& f) const {
    const int64_t grain = std::max<int64_t>(1, 2048 / (channels_ * chunks_));
    parallel_for(samples_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) f(n);
    });
  }
  int64_t rows_of_chunk(int64_t chunk) const {
    return std::min(chunk_rows_, rows_ - chunk * chunk_rows_);
  }

  // Workspace of `per_chunk` channel vectors per chunk, then `per_sample` ones per sample.
  size_t workspace(int64_t per_chunk, int64_t per_sample) const {
    return static_cast<size_t>((per_chunk * chunks_ + per_sample) * samples_ * channels_) *
           sizeof(float);
  }
  float* chunk_vectors(void* workspace, int64_t i) const {
    return static_cast<float*>(workspace) + i * samples_ * chunks_ * channels_;
  }
  float* sample_vectors(void* workspace, int64_t per_chunk, int64_t i) const {
    return chunk_vectors(workspace, per_chunk) + i * samples_ * channels_;
  }

  int64_t samples_, channels_, rows_, groups_, width_, chunk_rows_, chunks_;
  double epsilon_;
  ChannelFunctions<float> functions_ = channel_functions<float>(ChannelEpilogue::plain);

 private:
  std::shared_ptr<const std::vector<float>> neutral_;  // ones, then zeros, of each channel
};

class GroupNorm : public GroupKernel {
 public:
  using GroupKernel::GroupKernel;
  size_t workspace_bytes() const { return workspace(2, 2); }

  void run(const Bindings& bindings) {
    x_ = input<const float>(bindings, 0);
    weight_ = channel_input(bindings, 1, 1);
    bias_ = channel_input(bindings, 2, 0);
    y_ = output<float>(bindings, 0);
    mean_ = output<float>(bindings, 1);
    rstd_ = output<float>(bindings, 2);
    means_ = chunk_vectors(bindings.workspace, 0);
    squares_ = chunk_vectors(bindings.workspace, 1);
    centre_ = sample_vectors(bindings.workspace, 2, 0);
    scale_ = sample_vectors(bindings.workspace, 2, 1);
    for_chunks([&](int64_t, int64_t chunk, int64_t at, int64_t rows) {
      functions_.statistics(x_ + at, rows, channels_, means_ + chunk * channels_,
                            squares_ + chunk * channels_);
    });
    for_samples([&](int64_t n) {
      for (int64_t g = 0; g < groups_; ++g) merge(n, g);
    });
    for_chunks([&](int64_t n, int64_t, int64_t at, int64_t rows) {
      const ChannelAffine line{centre_ + n * channels_, scale_ + n * channels_, bias_};
      functions_.normalise(x_ + at, line, nullptr, rows, channels_, y_ + at, false);
    });
  }

 private:
  // Merges the chunks' statistics of a group (Chan, Golub & LeVeque 1979).
  void merge(int64_t n, int64_t g) const {
    double count = 0, mean = 0, squares = 0;
    for (int64_t c = 0; c < chunks_; ++c) {
      const auto rows = static_cast<double>(rows_of_chunk(c));
      const int64_t first = (n * chunks_ + c) * channels_;
      for (int64_t k = g * width_; k < (g + 1) * width_; ++k) {
        const double step = means_[first + k] - mean;
        mean += step * rows / (count + rows);
        squares += squares_[first + k] + step * step * count * rows / (count + rows);
        count += rows;
      }
    }
    const double rstd = 1 / std::sqrt(squares / count + epsilon_);
    mean_[n * groups_ + g] = static_cast<float>(mean);
    rstd_[n * groups_ + g] = static_cast<float>(rstd);
    for (int64_t k = g * width_; k < (g + 1) * width_; ++k) {
      centre_[n * channels_ + k] = static_cast<float>(mean);
      scale_[n * channels_ + k] = static_cast<float>(rstd * weight_[k]);
    }
  }

  const float *x_ = nullptr, *weight_ = nullptr, *bias_ = nullptr;
  float *y_ = nullptr, *mean_ = nullptr, *rstd_ = nullptr;
  float *means_ = nullptr, *squares_ = nullptr, *centre_ = nullptr, *scale_ = nullptr;
};

// With Σ over the pixels of a channel: a = Σdy, b = Σdy·(x − mean). Then dbias = Σ_n a, dweight =
// Σ_n b·rstd, and dx = rstd·(dy·weight − mean(dy·weight) − x̂·mean(dy·weight·x̂)).
class GroupNormBackward : public GroupKernel {
 public:
  using GroupKernel::GroupKernel;
  size_t workspace_bytes() const { return workspace(2, 6); }

  void run(const Bindings& bindings) {
    x_ = input<const float>(bindings, 0);
    dy_ = input<const float>(bindings, 1);
    weight_ = channel_input(bindings, 2, 1);
    mean_ = input<const float>(bindings, 3);
    rstd_ = input<const float>(bindings, 4);
    dx_ = output<float>(bindings, 0);
    learns_ = bindings.outputs.size() > 1;
    if (learns_) {
      dweight_ = output<float>(bindings, 1);
      dbias_ = output<float>(bindings, 2);
    }
    sums_ = chunk_vectors(bindings.workspace, 0);
    weighted_ = chunk_vectors(bindings.workspace, 1);
    float** const vectors[] = {&centre_, &scale_, &slope_, &offset_, &part_dweight_, &part_dbias_};
    for (int64_t i = 0; i < 6; ++i) *vectors[i] = sample_vectors(bindings.workspace, 2, i);
    for_samples([&](int64_t n) {
      for (int64_t k = 0; k < channels_; ++k) {
        centre_[n * channels_ + k] = mean_[n * groups_ + k / width_];
      }
    });
    for_chunks([&](int64_t n, int64_t chunk, int64_t at, int64_t rows) {
      const ChannelAffine line{centre_ + n * channels_, nullptr, nullptr};
      functions_.gradient_sums(x_ + at, dy_ + at, line, rows, channels_, sums_ + chunk * channels_,
                               weighted_ + chunk * channels_);
    });
    for_samples([&](int64_t n) {
      for (int64_t g = 0; g < groups_; ++g) finish(n, g);
    });
    for_chunks([&](int64_t n, int64_t, int64_t at, int64_t rows) {
      const int64_t c = n * channels_;
      const ChannelAffine line{centre_ + c, scale_ + c, nullptr};
      functions_.input_gradient(x_ + at, dy_ + at, line, slope_ + c, offset_ + c, rows, channels_,
                                dx_ + at, false);
    });
    for (int64_t k = 0; learns_ && k < channels_; ++k) {
      double dweight = 0, dbias = 0;
      for (int64_t n = 0; n < samples_; ++n) {
        dweight += part_dweight_[n * channels_ + k];
        dbias += part_dbias_[n * channels_ + k];
      }
      dweight_[k] = static_cast<float>(dweight);
      dbias_[k] = static_cast<float>(dbias);
    }
  }

 private:
  void finish(int64_t n, int64_t g) const {
    const double rstd = rstd_[n * groups_ + g];
    double plain = 0, product = 0;  // of dy·weight, and of dy·weight·(x − mean)
    for (int64_t k = g * width_; k < (g + 1) * width_; ++k) {
      double sum = 0, weighted = 0;
      for (int64_t c = 0; c < chunks_; ++c) {
        sum += sums_[(n * chunks_ + c) * channels_ + k];
        weighted += weighted_[(n * chunks_ + c) * channels_ + k];
      }
      part_dbias_[n * channels_ + k] = static_cast<float>(sum);
      part_dweight_[n * channels_ + k] = static_cast<float>(weighted * rstd);
      plain += sum * weight_[k];
      product += weighted * weight_[k];
    }
    const auto count = static_cast<double>(rows_ * width_);
    for (int64_t k = g * width_; k < (g + 1) * width_; ++k) {
      const int64_t at = n * channels_ + k;
      scale_[at] = static_cast<float>(rstd * weight_[k]);
      slope_[at] = static_cast<float>(rstd * rstd * rstd * product / count);
      offset_[at] = static_cast<float>(rstd * plain / count);
    }
  }

  const float *x_ = nullptr, *dy_ = nullptr, *weight_ = nullptr;
  const float *mean_ = nullptr, *rstd_ = nullptr;
  bool learns_ = true;  // weight and bias are present
  float *dx_ = nullptr, *dweight_ = nullptr, *dbias_ = nullptr;
  float *sums_ = nullptr, *weighted_ = nullptr, *centre_ = nullptr;
  float *scale_ = nullptr, *slope_ = nullptr, *offset_ = nullptr;
  float *part_dweight_ = nullptr, *part_dbias_ = nullptr;
};

bool usable_group_norm(const KernelRequest& request) {
  return computes_in_f32(request) && request.inputs[0].shape.elements() > 0;
}

}  // namespace

MadeKernel make_group_norm(const KernelRequest& request) {
  return usable_group_norm(request) ? make_call_kernel<GroupNorm>(request) : nullptr;
}

MadeKernel make_group_norm_backward(const KernelRequest& request) {
  return usable_group_norm(request) ? make_call_kernel<GroupNormBackward>(request) : nullptr;
}

}  // namespace dltrain
