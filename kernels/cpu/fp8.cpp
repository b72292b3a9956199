// The ops of lib/ops/fp8.cpp for f32 and bf16: loops over elements that the compiler makes vectors
// of; those in codes are emitted for GPUs only, and are plain here. A block's largest magnitude is
// that of its bits as an integer.
#include "shared/fp8.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int64_t kFp8Piece = 4096;  // elements

// Returns the last place of `counts` that is not 0: the scale of the greatest amax.
int last_place(const float* counts) {
  int place = kFp8Counts - 1;
  while (place > 0 && counts[place] == 0) --place;
  return place;
}

// The bits of an f32 as which an element is computed. Rounded values are exact in bf16.
struct AsF32 {
  using Stored = uint32_t;
  static uint32_t widen(uint32_t x) { return x; }
  static uint32_t narrow(uint32_t x) { return x; }
};
struct AsBf16 {
  using Stored = uint16_t;
  static uint32_t widen(uint16_t x) { return uint32_t{x} << 16; }
  static uint16_t narrow(uint32_t x) { return static_cast<uint16_t>(x >> 16); }
};

template <typename E>
uint32_t largest_magnitude(const typename E::Stored* x, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, E::widen(x[i]) & 0x7FFFFFFFu);
  return most;
}

// Numbers of elements that are rounded to the largest number or to 0.
struct Lost {
  int64_t saturated = 0, underflow = 0;
  void operator+=(const Lost& other) {
    saturated += other.saturated;
    underflow += other.underflow;
  }
};

template <typename E>
Lost round_span(const typename E::Stored* x, typename E::Stored* y, int64_t count, int place,
                const Fp8Format& format) {
  const float scale = fp8_scale(place), inverse = fp8_inverse(place);
  int saturated = 0, underflow = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto in = bits_as<float>(E::widen(x[i]));
    const float out = to_fp8(in, inverse, scale, format);
    saturated += is_saturated(in, inverse, format) ? 1 : 0;
    underflow += is_underflow(in, out) ? 1 : 0;
    y[i] = E::narrow(bits_as<uint32_t>(out));
  }
  return {saturated, underflow};
}

// The sums of the threads' lost elements.
class LostOfThreads {
 public:
  void add(const Lost& lost) {
    saturated_ += lost.saturated;
    underflow_ += lost.underflow;
  }
  void write(double* lost, int64_t count) const {
    const double each = 1 / static_cast<double>(std::max<int64_t>(count, 1));
    lost[0] = static_cast<double>(saturated_) * each;
    lost[1] = static_cast<double>(underflow_) * each;
    lost[2] = 1;
  }

 private:
  std::atomic<int64_t> saturated_ = 0, underflow_ = 0;
};

// Rounds `rows` rows, which are a row of blocks that are `width` wide. `m`: a number for each
// block.
template <typename E>
Lost round_blocks(const typename E::Stored* x, typename E::Stored* y, int64_t rows, int64_t columns,
                  int64_t width, const Fp8Format& format, uint32_t* m) {
  const int64_t blocks = ceil_div(columns, width);
  std::fill(m, m + blocks, 0);
  for (int64_t r = 0; r < rows; ++r) {
    const auto* row = x + r * columns;
    if (width == 1) {
      for (int64_t k = 0; k < columns; ++k) m[k] = std::max(m[k], E::widen(row[k]) & 0x7FFFFFFFu);
      continue;
    }
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t size = std::min(width, columns - b * width);
      m[b] = std::max(m[b], largest_magnitude<E>(row + b * width, size));
    }
  }
  for (int64_t b = 0; b < blocks; ++b) m[b] = static_cast<uint32_t>(fp8_place(m[b], format));
  Lost lost;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t at = r * columns + b * width;
      lost += round_span<E>(x + at, y + at, std::min(width, columns - b * width),
                            static_cast<int>(m[b]), format);
    }
  }
  return lost;
}

template <typename E>
std::unique_ptr<Kernel> counts_kernel(const KernelRequest& request) {
  return make_kernel([format = fp8_format_of(request), count = request.inputs[0].shape.elements()](
                         const Bindings& b, Stream&) {
    std::atomic<uint32_t> most = 0;
    parallel_for(count, kFp8Piece, [&](int64_t begin, int64_t end) {
      const uint32_t own =
          largest_magnitude<E>(b.input<typename E::Stored>(0) + begin, end - begin);
      uint32_t before = most;
      while (before < own && !most.compare_exchange_weak(before, own)) {
      }
    });
    auto* counts = b.output<float>(0);
    std::fill(counts, counts + kFp8Counts, 0.0f);
    const int place = fp8_place(most, format);
    if (place > 0) counts[place] = 1;
  });
}

template <typename E>
std::unique_ptr<Kernel> round_kernel(const KernelRequest& request) {
  using Stored = typename E::Stored;
  const Shape& shape = request.inputs[0].shape;
  const int64_t count = shape.elements(), columns = shape[-1];
  const std::vector<int64_t> block = request.attributes.integers("block");
  if (block.empty()) {
    return make_kernel([format = fp8_format_of(request), count](const Bindings& b, Stream&) {
      const int place = last_place(b.input<float>(1));
      LostOfThreads lost;
      parallel_for(count, kFp8Piece, [&](int64_t begin, int64_t end) {
        lost.add(round_span<E>(b.input<Stored>(0) + begin, b.output<Stored>(0) + begin, end - begin,
                               place, format));
      });
      lost.write(b.output<double>(1), count);
    });
  }
  const int64_t rows = columns == 0 ? 0 : count / columns, high = block[0], wide = block[1];
  const int64_t strips = ceil_div(rows, high), across = ceil_div(columns, wide);
  const auto run = [=, format = fp8_format_of(request)](const Bindings& b, Stream&) {
    LostOfThreads lost;
    parallel_for(
        strips, 1 + kFp8Piece / std::max<int64_t>(high * columns, 1),
        [&](int64_t first, int64_t last) {
          for (int64_t strip = first; strip < last; ++strip) {
            const int64_t at = strip * high * columns;
            lost.add(round_blocks<E>(b.input<Stored>(0) + at, b.output<Stored>(0) + at,
                                     std::min(high, rows - strip * high), columns, wide, format,
                                     static_cast<uint32_t*>(b.workspace) + strip * across));
          }
        });
    lost.write(b.output<double>(1), count);
  };
  return make_kernel(run, static_cast<size_t>(strips * across) * sizeof(uint32_t));
}

// x as the codes have it: rows of `used` elements, and the distances of its elements.
struct CodedRows {
  Fp8Scales scales;
  int64_t used, down, across;
  int64_t high, wide;  // codes that are made together
  Fp8Format format;
};

// Makes the codes of a block, whose scale `given` < 0 leaves to its largest element, and returns
// the place of the scale.
template <typename E>
int code_block(const CodedRows& c, const typename E::Stored* x, int64_t row, int64_t column,
               int given, uint8_t* codes, Lost& lost) {
  const int64_t rows = std::min(c.high, c.scales.rows - row);
  const int64_t columns = std::min(c.wide, c.used - column);
  const auto bits = [&](int64_t i, int64_t j) {
    return E::widen(x[(row + i) * c.down + (column + j) * c.across]);
  };
  uint32_t most = 0;
  for (int64_t i = 0; given < 0 && i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) most = std::max(most, bits(i, j) & 0x7FFFFFFFu);
  }
  const int place = given < 0 ? fp8_place(most, c.format) : given;
  const float inverse = fp8_inverse(place);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const auto in = bits_as<float>(bits(i, j));
      const float y = to_fp8(in, inverse, 1, c.format);
      lost += {is_saturated(in, inverse, c.format) ? 1 : 0, is_underflow(in, y) ? 1 : 0};
      codes[(row + i) * c.scales.columns + column + j] = fp8_code(y, c.format);
    }
  }
  return place;
}

template <typename E>
std::unique_ptr<Kernel> codes_kernel(const KernelRequest& request) {
  const TensorSpec &x = request.inputs[0], &out = request.outputs[0], &scale = request.outputs[1];
  const int64_t columns = x.shape[-1], rows = columns == 0 ? 0 : x.shape.elements() / columns;
  const bool turned = request.attributes.boolean("transpose");
  const Fp8Scales scales = fp8_scales(out.shape, request.attributes.integers("block"));
  const int64_t used = turned ? rows : columns;
  const CodedRows c{.scales = scales,
                    .used = used,
                    .down = turned ? 1 : columns,
                    .across = turned ? columns : 1,
                    .high = std::max<int64_t>(scales.high, 1),
                    .wide = scales.wide == 0 ? std::max<int64_t>(used, 1) : scales.wide,
                    .format = fp8_format_of(request)};
  return make_kernel([c, out, scale, rows, columns](const Bindings& b, Stream&) {
    const bool blocks = c.scales.wide > 0;
    const int given = blocks ? -1 : last_place(b.input<float>(1));
    auto* codes = b.output<uint8_t>(0);
    std::fill(codes, codes + out.bytes(), uint8_t{0});
    std::fill(b.output<char>(1), b.output<char>(1) + scale.bytes(), char{0});
    LostOfThreads lost;
    parallel_for(
        ceil_div(c.scales.rows, c.high), 1 + kFp8Piece / std::max<int64_t>(c.high * c.used, 1),
        [&](int64_t first, int64_t last) {
          Lost own;
          for (int64_t i = first * c.high; i < std::min(last * c.high, c.scales.rows);
               i += c.high) {
            for (int64_t k = 0; k < c.used; k += c.wide) {
              const int place =
                  code_block<E>(c, b.input<typename E::Stored>(0), i, k, given, codes, own);
              const int64_t at = c.scales.at(i, k);
              if (scale.dtype == DType::u8) {
                b.output<uint8_t>(1)[at] = static_cast<uint8_t>(place);
              } else if (blocks) {
                b.output<float>(1)[at] = fp8_scale(place);
              }
            }
          }
          lost.add(own);
        });
    if (!blocks) *b.output<float>(1) = fp8_scale(given);
    lost.write(b.output<double>(2), rows * columns);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_fp8_counts(const KernelRequest& request) {
  if (request.inputs[0].dtype == DType::bf16) return counts_kernel<AsBf16>(request);
  return request.inputs[0].dtype == DType::f32 ? counts_kernel<AsF32>(request) : nullptr;
}

std::unique_ptr<Kernel> make_fp8_round(const KernelRequest& request) {
  if (request.inputs[0].dtype == DType::bf16) return round_kernel<AsBf16>(request);
  return request.inputs[0].dtype == DType::f32 ? round_kernel<AsF32>(request) : nullptr;
}

std::unique_ptr<Kernel> make_fp8_codes(const KernelRequest& request) {
  if (request.inputs[0].dtype == DType::bf16) return codes_kernel<AsBf16>(request);
  return request.inputs[0].dtype == DType::f32 ? codes_kernel<AsF32>(request) : nullptr;
}

std::unique_ptr<Kernel> make_fp8_values(const KernelRequest& request) {
  const TensorSpec& y = request.outputs[0];
  const bool bytes = request.inputs[1].dtype == DType::u8;
  if ((!bytes && request.inputs[1].dtype != DType::f32) || y.dtype == DType::f64) return nullptr;
  const NarrowFunction narrow = y.dtype == DType::f32 ? nullptr : narrow_function(y.dtype);
  const Fp8Scales scales =
      fp8_scales(request.inputs[0].shape, request.attributes.integers("block"));
  return make_kernel(
      [=, count = y.shape.elements(), format = fp8_format_of(request)](const Bindings& b, Stream&) {
        const auto scale = [&](int64_t i) {
          const int64_t at = scales.at(i / scales.columns, i % scales.columns);
          return bytes ? fp8_scale(b.input<uint8_t>(1)[at]) : b.input<float>(1)[at];
        };
        parallel_for(count, kFp8Piece, [&](int64_t first, int64_t last) {
          std::array<float, kFp8Piece> piece;
          for (int64_t at = first; at < last; at += kFp8Piece) {
            const int64_t size = std::min(kFp8Piece, last - at);
            float* values = narrow == nullptr ? b.output<float>(0) + at : piece.data();
            for (int64_t i = 0; i < size; ++i) {
              values[i] = fp8_value(b.input<uint8_t>(0)[at + i], format) * scale(at + i);
            }
            if (narrow != nullptr) narrow(values, b.output<uint16_t>(0) + at, size);
          }
        });
      });
}

std::unique_ptr<Kernel> make_fp8_scale_update(const KernelRequest& request) {
  if (!computes_in_f32(request)) return nullptr;
  return make_kernel([window = request.inputs[2].shape.elements()](const Bindings& b, Stream&) {
    const StepState& state = *b.input<StepState>(0);
    if (state.out.finite == 0) return;
    auto *history = static_cast<float*>(b.inputs[2]), *scale = static_cast<float*>(b.inputs[3]);
    history[(state.out.updates - 1) % window] = static_cast<float>(last_place(b.input<float>(1)));
    const auto most = static_cast<int>(*std::max_element(history, history + window));
    std::fill(scale, scale + kFp8Counts, 0.0f);
    if (most > 0) scale[most] = 1;
  });
}

}  // namespace dltrain
