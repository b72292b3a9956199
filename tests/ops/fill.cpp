// The contents of a case's inputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "ops/image_maps.h"
#include "ops/runner.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

class Numbers {
 public:
  explicit Numbers(const std::string& name) : stream_(random_stream(name)) {}

  uint64_t below(uint64_t bound) { return bits() % bound; }
  double uniform() { return uniform_from_bits(bits()); }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  uint32_t bits() {
    if (next_ % 4 == 0) block_ = random_block(7, stream_, 0, next_ / 4);
    return block_.v[next_++ % 4];
  }

  uint64_t stream_;
  uint64_t next_ = 0;
  Philox4 block_{};
};

// A shuffled grid around zero, half a step away from it.
void fill_apart(HostTensor& t, Numbers& numbers) {
  const auto n = static_cast<size_t>(t.elements());
  std::vector<int64_t> places(n);
  std::iota(places.begin(), places.end(), 0);
  for (size_t i = n; i > 1; --i) std::swap(places[i - 1], places[numbers.below(i)]);
  const double step = std::min(0.1, 64.0 / static_cast<double>(n));
  for (size_t i = 0; i < n; ++i) {
    const auto centred = static_cast<double>(places[i] - static_cast<int64_t>(n / 2));
    t.set(static_cast<int64_t>(i), (centred + 0.5) * step);
  }
}

// For each window of adaptive_max_pool2d a pixel in it.
void fill_adaptive_positions(HostTensor& t, Numbers& numbers, const Attributes& attributes) {
  const Shape x(attributes.integers("input_shape"));
  const ImageMaps maps = pooling_maps("adaptive_max_pool2d", x, attributes);
  const auto any_of = [&](const AxisMap& map, int64_t output) {
    const auto first = static_cast<uint64_t>(map.begin[static_cast<size_t>(output)]);
    const auto last = static_cast<uint64_t>(map.begin[static_cast<size_t>(output) + 1]);
    return map.index[first + numbers.below(last - first)];
  };
  const Shape& y = t.spec.shape;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int64_t row = any_of(maps.height, i / (y[3] * y[2]) % y[1]);
    t.set(i, static_cast<double>(row * x[2] + any_of(maps.width, i / y[3] % y[2])));
  }
}

// For each window a place that is not in the padding.
void fill_positions(HostTensor& t, Numbers& numbers, const Attributes& attributes) {
  if (attributes.has("output_size")) return fill_adaptive_positions(t, numbers, attributes);
  const auto kernel = attributes.integers("kernel"), stride = attributes.integers("stride", kernel),
             padding = attributes.integers("padding", {0, 0}),
             x = attributes.integers("input_shape");
  const Shape& y = t.spec.shape;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const int64_t oh = i / (y[3] * y[2]) % y[1], ow = i / y[3] % y[2];
    int64_t place, h, w;
    do {
      place = static_cast<int64_t>(numbers.below(static_cast<uint64_t>(kernel[0] * kernel[1])));
      h = oh * stride[0] - padding[0] + place / kernel[1];
      w = ow * stride[1] - padding[1] + place % kernel[1];
    } while (h < 0 || h >= x[1] || w < 0 || w >= x[2]);
    t.set(i, static_cast<double>(place));
  }
}

void fill_distributions(HostTensor& t, Numbers& numbers) {
  const int64_t classes = t.spec.shape[-1];
  for (int64_t row = 0; row < t.elements() / classes; ++row) {
    std::vector<double> values;
    for (int64_t k = 0; k < classes; ++k) {
      // Some shares are 0.
      values.push_back(k % 3 == 2 ? 0 : -std::log(1 - numbers.uniform()));
    }
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (int64_t k = 0; k < classes; ++k) {
      t.set(row * classes + k, row % 7 == 6 ? std::numeric_limits<double>::quiet_NaN()
                                            : values[static_cast<size_t>(k)] / sum);
    }
  }
}

void fill(HostTensor& t, const CaseInput& input, const OpCase& c, Numbers& numbers) {
  const int64_t n = t.elements();
  switch (input.fill) {
    case Fill::normal:
    case Fill::constant:
    case Fill::not_finite:
      for (int64_t i = 0; i < n; ++i) t.set(i, numbers.normal());
      if (input.fill == Fill::not_finite) t.set(n / 2, std::numeric_limits<double>::infinity());
      break;
    case Fill::positive:
      for (int64_t i = 0; i < n; ++i) t.set(i, 0.5 + 1.5 * numbers.uniform());
      break;
    case Fill::unit:
      for (int64_t i = 0; i < n; ++i) t.set(i, numbers.uniform());
      break;
    case Fill::apart:
      fill_apart(t, numbers);
      break;
    case Fill::labels:
      for (int64_t i = 0; i < n; ++i) {
        const auto label = static_cast<double>(numbers.below(static_cast<uint64_t>(input.bound)));
        t.set(i, i % 7 == 6 ? -100 : label);
      }
      break;
    case Fill::targets:
    case Fill::shares:
      for (int64_t i = 0; i < n; ++i) {
        const double value = input.fill == Fill::targets ? numbers.normal() : numbers.uniform();
        t.set(i, i % 7 == 6 ? std::numeric_limits<double>::quiet_NaN() : value);
      }
      break;
    case Fill::distributions:
      fill_distributions(t, numbers);
      break;
    case Fill::ids:
      for (int64_t i = 0; i < n; ++i) {
        t.set(i, static_cast<double>(numbers.below(static_cast<uint64_t>(input.bound))));
      }
      break;
    case Fill::documents:
    case Fill::later_documents: {
      const int64_t row = input.spec.shape[-1];
      const int64_t first = input.fill == Fill::documents ? 0 : input.bound / 2;
      for (int64_t i = 0; i < n; ++i) {
        t.set(i, static_cast<double>((first + i % row) % (input.bound + i / row)));
      }
      break;
    }
    case Fill::slots:
      for (int64_t i = 0; i < n; ++i) t.set(i, static_cast<double>(n - 1 - i));
      break;
    case Fill::gaps:
      for (int64_t i = 0; i < n; ++i) {
        t.set(i, std::min(i, n - 1 - i) % 3 == 0 ? -1 : static_cast<double>(n - 1 - i));
      }
      break;
    case Fill::groups:
      for (int64_t i = 1; i < n; ++i) {
        const double share = n == 2 ? 1 : static_cast<double>(i - 1) / static_cast<double>(n - 2);
        t.set(i, std::floor(static_cast<double>(input.bound) * share * share));
      }
      break;
    case Fill::state:
      std::memcpy(t.data.data(), &c.state, sizeof(StepState));
      break;
    case Fill::codes:
      for (int64_t i = 0; i < n; ++i) {
        const auto code = static_cast<double>(numbers.below(input.bound > 0 ? input.bound : 256));
        t.set(i, input.bound > 0 && i % 3 == 0 ? code + 128 : code);
      }
      break;
    case Fill::scales:
      for (int64_t i = 0; i < n; ++i) {
        const auto power = static_cast<double>(numbers.below(7)) - 3;
        t.set(i, t.spec.dtype == DType::u8 ? power + 127 : std::exp2(power));
      }
      break;
    case Fill::position:
      fill_positions(t, numbers, c.attributes);
      break;
    case Fill::seed:
      for (int64_t i = 0; i < n; ++i) t.set(i, 0.125);
      break;
    case Fill::place:
      for (int64_t i = std::max<int64_t>(0, input.bound - 2); i <= input.bound; ++i) t.set(i, 1);
      break;
    case Fill::absent:
    case Fill::kept:
      break;
  }
}

template <typename T>
T read_as(const std::vector<std::byte>& data, int64_t i) {
  T out;
  std::memcpy(&out, data.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return out;
}

template <typename T>
T rounded(double value) {
  T out;
  from_f32(static_cast<float>(value), out);
  return out;
}

}  // namespace

double HostTensor::get(int64_t i) const {
  const auto read = [&](auto zero) {
    std::memcpy(&zero, data.data() + static_cast<size_t>(i) * sizeof(zero), sizeof(zero));
    return static_cast<double>(zero);
  };
  switch (spec.dtype) {
    case DType::f32:
      return read(0.0f);
    case DType::f64:
      return read(0.0);
    case DType::i32:
      return read(int32_t{0});
    case DType::u8:
      return read(uint8_t{0});
    case DType::bf16:
      return to_f32(read_as<Bf16>(data, i));
    case DType::f16:
      return to_f32(read_as<F16>(data, i));
    default:
      fail(ExitCode::internal, "op cases do not read {}", to_string(spec));
  }
}

void HostTensor::set(int64_t i, double value) {
  const auto write = [&](auto typed) {
    std::memcpy(data.data() + static_cast<size_t>(i) * sizeof(typed), &typed, sizeof(typed));
  };
  switch (spec.dtype) {
    case DType::f32:
      return write(static_cast<float>(value));
    case DType::f64:
      return write(value);
    case DType::i32:
      return write(static_cast<int32_t>(value));
    case DType::u8:
      return write(static_cast<uint8_t>(value));
    case DType::bf16:
      return write(rounded<Bf16>(value));
    case DType::f16:
      return write(rounded<F16>(value));
    default:
      fail(ExitCode::internal, "op cases do not write {}", to_string(spec));
  }
}

HostTensor converted(const HostTensor& tensor, DType floating) {
  if (!is_floating(tensor.spec.dtype) || tensor.spec.dtype == floating) return tensor;
  HostTensor out({tensor.spec.shape, floating});
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, tensor.get(i));
  return out;
}

HostTensor random_tensor(const TensorSpec& spec, const std::string& name) {
  Numbers numbers(name);
  HostTensor out(spec);
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, numbers.normal());
  return out;
}

Attributes case_attributes(const OpCase& c, DType floating) {
  Attributes out = c.attributes;
  if (const auto dtype = dtype_from_name(out.text("output_dtype"));
      c.one_low_dtype && dtype && is_low_precision(*dtype) && is_low_precision(floating)) {
    out.set("output_dtype", std::string(dtype_name(floating)));  // one 16-bit dtype
  }
  if (floating != DType::f64) return out;
  for (const char* name : {"dtype", "output_dtype"}) {
    const auto dtype = dtype_from_name(out.text(name));
    if (dtype && is_floating(*dtype)) out.set(name, std::string(dtype_name(floating)));
  }
  return out;
}

SpecList case_specs(const OpCase& c, DType floating) {
  // The loss seed is f64, and copies are of 16 bits, whatever the tensors are.
  const auto in_dtype = [&](bool first_shape_only) {
    SpecList specs;
    for (const CaseInput& input : c.inputs) {
      const TensorSpec& spec = input.spec;
      const bool stays = dtype_size(floating) == 2 && input.wide;
      const bool chosen = spec.dtype == DType::f32 && !stays &&
                          (!first_shape_only || spec.shape == c.inputs[0].spec.shape);
      specs.push_back({spec.shape, chosen ? floating : spec.dtype});
    }
    return specs;
  };
  SpecList all = in_dtype(false);
  if (dtype_size(floating) != 2) return all;
  try {
    find_op(c.op)->output_specs(all, case_attributes(c, DType::f32));
    return all;
  } catch (const Error&) {
    return in_dtype(true);
  }
}

std::vector<HostTensor> case_inputs(const OpCase& c, DType floating) {
  const SpecList specs = case_specs(c, floating);
  std::vector<HostTensor> out;
  for (const CaseInput& input : c.inputs) {
    Numbers numbers(c.name + std::to_string(out.size()));
    HostTensor t(input.spec);
    fill(t, input, c, numbers);
    out.push_back(converted(t, specs[out.size()].dtype));
  }
  return out;
}

bool has_low_precision(const OpCase& c) {
  const OpDef& op = *find_op(c.op);
  if (rounds_factors(c) || op.has_effect || c.op == "loss_seed") return false;
  const SpecList inputs = case_specs(c, DType::bf16);
  try {
    op.output_specs(inputs, case_attributes(c, DType::bf16));
  } catch (const Error&) {
    return false;
  }
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const TensorSpec& spec) { return spec.dtype == DType::bf16; });
}

SpecList specs_of(const std::vector<HostTensor>& tensors) {
  SpecList out;
  for (const HostTensor& t : tensors) out.push_back(t.spec);
  return out;
}

}  // namespace dltrain
