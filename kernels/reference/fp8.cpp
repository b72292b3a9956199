// fp8_counts, fp8_round and fp8_scale_update, by the definition of the formats: the nearest
// multiple of the step between FP8 numbers.
#include <algorithm>
#include <cmath>
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
    for (int64_t i = 0; i < c.inputs[0].shape.elements(); ++i) {
      const double a = std::abs(c.element(0, i));
      if (!(a <= amax)) amax = a;
      if (std::isnan(amax)) break;
    }
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
          each([&](int64_t at) {
            const double a = std::abs(c.element(0, at));
            if (!(a <= amax) && !std::isnan(amax)) amax = a;
          });
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
