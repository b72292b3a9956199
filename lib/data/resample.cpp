#include "data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dltrain {
namespace {

using Float4 = float __attribute__((vector_size(16)));

Float4 load4(const float* from) {
  Float4 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The elements of a line from which one element of the result is computed.
struct Taps {
  int64_t first, count;
};

// The weights of a line are contiguous, `most` for each element of the result.
struct ResampleLine {
  int64_t most = 0;
  Taps* taps = nullptr;
  float* weights = nullptr;
};

int64_t most_taps(double begin_length, int64_t out) {
  const double scale = begin_length / static_cast<double>(out);
  return 2 * static_cast<int64_t>(std::ceil(std::max(scale, 1.0))) + 1;
}

void fill_line(ResampleLine& line, double begin, double length, int64_t in, int64_t out) {
  const double scale = length / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  for (int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    auto first = static_cast<int64_t>(std::floor(centre - support + 0.5));
    auto last = static_cast<int64_t>(std::floor(centre + support + 0.5));
    first = std::clamp<int64_t>(first, 0, in - 1);
    last = std::clamp<int64_t>(last, first + 1, std::min(in, first + line.most));
    float* weights = line.weights + i * line.most;
    double sum = 0;
    for (int64_t k = first; k < last; ++k) {
      const double distance = std::abs(static_cast<double>(k) + 0.5 - centre) / support;
      const double weight = std::max(0.0, 1.0 - distance);
      weights[k - first] = static_cast<float>(weight);
      sum += weight;
    }
    // Beyond the edge of the image only the nearest pixel is used.
    if (sum <= 0) weights[0] = 1, last = first + 1, sum = 1;
    for (int64_t k = 0; k < last - first; ++k) {
      weights[k] = static_cast<float>(weights[k] / sum);
    }
    line.taps[i] = {first, last - first};
  }
}

// out = sum of weighted rows, n elements each.
template <typename T>
void add_rows(const T* rows, int64_t stride, const float* weights, int64_t count, int64_t n,
              float* __restrict out) {
  int64_t k = 0;
  if (count >= 3) {
    const T *a = rows, *b = rows + stride, *c = rows + 2 * stride;
    const float u = weights[0], v = weights[1], w = weights[2];
    for (int64_t i = 0; i < n; ++i) {
      out[i] = u * static_cast<float>(a[i]) + v * static_cast<float>(b[i]) +
               w * static_cast<float>(c[i]);
    }
    k = 3;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = weights[0] * static_cast<float>(rows[i]);
    k = 1;
  }
  for (; k < count; ++k) {
    const T* row = rows + k * stride;
    const float weight = weights[k];
    for (int64_t i = 0; i < n; ++i) out[i] += weight * static_cast<float>(row[i]);
  }
}

// Computes a row of three channels: a pixel is the first three lanes of a vector, and the fourth is
// overwritten by the next pixel.
void mix_row3(const ResampleLine& line, const float* row, int64_t width, float* out) {
  for (int64_t x = 0; x < width; ++x) {
    const Taps taps = line.taps[x];
    const float* weights = line.weights + x * line.most;
    const float* from = row + 3 * taps.first;
    Float4 sum = weights[0] * load4(from);
    for (int64_t k = 1; k < taps.count; ++k) sum += weights[k] * load4(from + 3 * k);
    std::memcpy(out + 3 * x, &sum, sizeof sum);
  }
}

void mix_row(const ResampleLine& line, const float* row, int64_t width, int64_t channels,
             float* out) {
  for (int64_t x = 0; x < width; ++x) {
    const Taps taps = line.taps[x];
    const float* weights = line.weights + x * line.most;
    for (int64_t c = 0; c < channels; ++c) {
      const float* from = row + taps.first * channels + c;
      float sum = 0;
      for (int64_t k = 0; k < taps.count; ++k) sum += weights[k] * from[k * channels];
      out[x * channels + c] = sum;
    }
  }
}

void store(const float* from, int64_t n, float* to) {
  std::copy_n(from, n, to);
}
void store(const float* from, int64_t n, uint8_t* to) {
  for (int64_t i = 0; i < n; ++i) {
    // NOLINTNEXTLINE(bugprone-incorrect-roundings): not negative
    const int value = static_cast<int>(from[i] + 0.5f);
    to[i] = static_cast<uint8_t>(std::min(value, 255));
  }
}

}  // namespace

template <typename T>
void resample(WorkingImage<T>& frame, const Box& box, int64_t height, int64_t width) {
  const ImageView<T> in = frame.image();
  const int64_t channels = in.size.channels;
  ResampleLine rows{.most = most_taps(box.height, height)},
      columns{.most = most_taps(box.width, width)};
  const int64_t in_row = in.size.width * channels, out_row = width * channels;
  constexpr int64_t kTapFloats = sizeof(Taps) / sizeof(float);
  constexpr int64_t kRoom = 8;
  const int64_t floats = (height + width) * kTapFloats + height * rows.most + width * columns.most +
                         in_row + out_row + 2 * kRoom;
  std::vector<float>& scratch = frame.scratch();
  if (static_cast<int64_t>(scratch.size()) < floats) scratch.resize(static_cast<size_t>(floats));
  float* at = scratch.data();
  rows.taps = reinterpret_cast<Taps*>(at);
  columns.taps = reinterpret_cast<Taps*>(at += height * kTapFloats);
  rows.weights = at += width * kTapFloats;
  columns.weights = at += height * rows.most;
  float* line = at += width * columns.most;
  float* result = at + in_row + kRoom;
  fill_line(rows, box.y, box.height, in.size.height, height);
  fill_line(columns, box.x, box.width, in.size.width, width);

  // Skips columns that the result does not need.
  const int64_t begin = columns.taps[0].first * channels;
  const Taps last = columns.taps[width - 1];
  const int64_t end = (last.first + last.count) * channels;
  std::fill_n(line + end, kRoom, 0.0f);
  T* out = frame.start({height, width, channels});
  for (int64_t y = 0; y < height; ++y) {
    const Taps taps = rows.taps[y];
    add_rows(in.data + taps.first * in.row + begin, in.row, rows.weights + y * rows.most,
             taps.count, end - begin, line + begin);
    if (channels == 3) {
      mix_row3(columns, line, width, result);
    } else {
      mix_row(columns, line, width, channels, result);
    }
    store(result, out_row, out + y * out_row);
  }
  frame.finish();
}

template void resample<uint8_t>(WorkingImage<uint8_t>&, const Box&, int64_t, int64_t);
template void resample<float>(WorkingImage<float>&, const Box&, int64_t, int64_t);

}  // namespace dltrain
