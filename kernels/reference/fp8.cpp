// The ops of lib/ops/fp8.cpp but fp8_matmul, by the definition of the formats: the nearest multiple
// of the step between FP8 numbers.
#include "shared/fp8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/step_state.h"
#include "reference/call.h"
#include "reference/makers.h"

namespace dltrain {
namespace {

struct Format {
  int fraction, least, greatest;  // bits of the fraction, exponents of normal numbers
};

Format format_of(const NaiveCall& c) {
  return c.attributes.text("format") == "e4m3" ? Format{3, -6, 8} : Format{2, -14, 15};
}

constexpr int kPlaces = 256, kBias = 127;
constexpr int kNotFinite = kPlaces - 1;

// Raises amax to the magnitude of x; NaN stays.
void raise_to(double& amax, double x) {
  if (!(std::abs(x) <= amax) && !std::isnan(amax)) amax = std::abs(x);
}

// The place of the least n with amax ≤ 1.75·2^(greatest + n).
int place_of(double amax, const Format& f) {
  if (amax == 0) return 0;
  if (!std::isfinite(amax)) return kNotFinite;
  return std::max(1, static_cast<int>(std::ceil(std::log2(amax / 1.75))) - f.greatest + kBias);
}

double rounded(double x, int place, const Format& f) {
  if (place == kNotFinite || !std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
  const int n = place == 0 ? 0 : place - kBias;
  const double a = std::ldexp(std::abs(x), -n);
  const int exponent = a == 0 ? f.least : std::max(std::ilogb(a), f.least);
  const double step = std::ldexp(1, exponent - f.fraction);
  const double y = std::min(std::nearbyint(a / step) * step, std::ldexp(1.75, f.greatest));
  return std::copysign(std::ldexp(y, n), x);
}

// The code of a rounded number of scale 1: the number of smaller ones, but for the sign.
int code_of(double y, const Format& f) {
  if (std::isnan(y)) return 0x7F;
  const int sign = std::signbit(y) ? 0x80 : 0;
  const double a = std::abs(y);
  const int exponent = a == 0 ? f.least : std::max(std::ilogb(a), f.least);
  const int fraction = static_cast<int>(std::ldexp(a, f.fraction - exponent));
  return sign | (((exponent - f.least) << f.fraction) + fraction);
}

double value_of(int code, const Format& f) {
  const int magnitude = code & 0x7F, exponent = magnitude >> f.fraction;
  const int fraction = magnitude - (exponent << f.fraction);
  const double a = magnitude == 0x7F ? std::numeric_limits<double>::quiet_NaN()
                   : exponent == 0   ? std::ldexp(fraction, f.least - f.fraction)
                                     : std::ldexp((1 << f.fraction) + fraction,
                                                  exponent - 1 + f.least - f.fraction);
  return code < 0x80 ? a : -a;
}

template <typename T>
int last_place(const T* counts) {
  int place = kPlaces - 1;
  while (place > 0 && counts[place] == 0) --place;
  return place;
}

}  // namespace

std::unique_ptr<Kernel> reference_fp8_counts(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    double amax = 0;
    for (int64_t i = 0; i < c.inputs[0].shape.elements(); ++i) raise_to(amax, c.element(0, i));
    std::vector<double> counts = c.zeros(0);
    const int place = place_of(amax, format_of(c));
    if (place > 0) counts[static_cast<size_t>(place)] = 1;
    c.put_all<T>(0, counts);
  });
}

std::unique_ptr<Kernel> reference_fp8_round(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Format f = format_of(c);
    const int64_t count = c.inputs[0].shape.elements(), columns = c.inputs[0].shape[-1];
    const int64_t rows = columns == 0 ? 0 : count / columns;
    std::vector<int64_t> block = c.attributes.integers("block");
    if (block.empty()) block = {std::max<int64_t>(rows, 1), std::max<int64_t>(columns, 1)};
    std::vector<double> lost{0, 0, 1};
    const double each_one = 1 / static_cast<double>(std::max<int64_t>(count, 1));
    for (int64_t r = 0; r < rows; r += block[0]) {
      for (int64_t k = 0; k < columns; k += block[1]) {
        const auto each = [&](const auto& f_of) {
          for (int64_t i = r; i < std::min(r + block[0], rows); ++i) {
            for (int64_t j = k; j < std::min(k + block[1], columns); ++j) f_of(i * columns + j);
          }
        };
        int place = c.has_input(1) ? last_place(c.input<T>(1)) : 0;
        if (!c.has_input(1)) {
          double amax = 0;
          each([&](int64_t at) { raise_to(amax, c.element(0, at)); });
          place = place_of(amax, f);
        }
        each([&](int64_t at) {
          const double x = c.element(0, at), y = rounded(x, place, f);
          c.put_element(0, at, y);
          const double limit = std::ldexp(1.75, f.greatest + (place == 0 ? 0 : place - kBias));
          if (place != kNotFinite && std::abs(x) > limit) lost[0] += each_one;
          if (y == 0 && x != 0) lost[1] += each_one;
        });
      }
    }
    std::copy(lost.begin(), lost.end(), c.output<double>(1));
  });
}

std::unique_ptr<Kernel> reference_fp8_codes(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const Format f = format_of(c);
    const int64_t count = c.inputs[0].shape.elements(), columns = c.inputs[0].shape[-1];
    const bool turned = c.attributes.boolean("transpose");
    const Fp8Scales scales = fp8_scales(c.outputs[0].shape, c.attributes.integers("block"));
    const int64_t used = !turned ? columns : columns == 0 ? 0 : count / columns;  // of a row
    const int64_t high = scales.wide == 0 ? scales.rows : scales.high;
    const int64_t wide = scales.wide == 0 ? used : scales.wide;
    auto* codes = c.output<uint8_t>(0);
    std::fill(codes, codes + c.outputs[0].shape.elements(), uint8_t{0});
    std::memset(c.output<char>(1), 0, c.outputs[1].bytes());
    std::vector<double> lost{0, 0, 1};
    for (int64_t r = 0; r < scales.rows; r += high) {
      for (int64_t k = 0; k < used; k += wide) {
        const auto each = [&](const auto& visit) {
          for (int64_t i = r; i < std::min(r + high, scales.rows); ++i) {
            for (int64_t j = k; j < std::min(k + wide, used); ++j) {
              visit(c.element(0, turned ? j * columns + i : i * columns + j),
                    codes[i * scales.columns + j]);
            }
          }
        };
        double amax = 0;
        each([&](double x, uint8_t&) { raise_to(amax, x); });
        const int place = c.has_input(1) ? last_place(c.input<T>(1)) : place_of(amax, f);
        const int n = place == 0 ? 0 : place - kBias;
        each([&](double x, uint8_t& code) {
          const double y = rounded(x, place, f);
          code = static_cast<uint8_t>(code_of(std::ldexp(y, -n), f));
          const bool saturated =
              place != kNotFinite && std::abs(x) > std::ldexp(1.75, f.greatest + n);
          lost[0] += saturated ? 1 / static_cast<double>(count) : 0;
          lost[1] += y == 0 && x != 0 ? 1 / static_cast<double>(count) : 0;
        });
        if (c.outputs[1].dtype == DType::u8) {
          c.output<uint8_t>(1)[scales.at(r, k)] = static_cast<uint8_t>(place);
        } else {
          c.output<T>(1)[scales.at(r, k)] = place == kNotFinite
                                                ? std::numeric_limits<T>::quiet_NaN()
                                                : static_cast<T>(std::ldexp(1, n));
        }
      }
    }
    std::copy(lost.begin(), lost.end(), c.output<double>(2));
  });
}

std::unique_ptr<Kernel> reference_fp8_values(const KernelRequest& request) {
  const bool bytes = request.inputs[1].dtype == DType::u8;
  const auto work = []<typename T>(const NaiveCall& c, T) {
    const Format f = format_of(c);
    const Fp8Scales scales = fp8_scales(c.inputs[0].shape, c.attributes.integers("block"));
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      const double code = value_of(c.input<uint8_t>(0)[i], f);
      const int64_t at = scales.at(i / scales.columns, i % scales.columns);
      c.put_element(0, i,
                    c.inputs[1].dtype == DType::u8
                        ? std::ldexp(code, c.input<uint8_t>(1)[at] - kBias)
                        : code * c.input<T>(1)[at]);
    }
  };
  return make_naive(request, bytes ? DType::f32 : compute_dtype(request.inputs), work);
}

std::unique_ptr<Kernel> reference_fp8_scale_update(const KernelRequest& request) {
  return make_naive(request, []<typename T>(const NaiveCall& c, T) {
    const StepState& state = *c.input<StepState>(0);
    if (state.out.finite == 0) return;
    const int64_t window = c.inputs[2].shape.elements();
    T *history = c.output<T>(0), *scale = c.output<T>(1);
    history[(state.out.updates - 1) % window] = static_cast<T>(last_place(c.input<T>(1)));
    const auto most = static_cast<int>(*std::max_element(history, history + window));
    std::fill(scale, scale + kPlaces, T(0));
    if (most > 0) scale[most] = 1;
  });
}

}  // namespace dltrain
