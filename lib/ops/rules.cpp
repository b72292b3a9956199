#include "ops/rules.h"

#include <algorithm>

#include "base/error.h"
#include "ops/step_state.h"

namespace dltrain {

void expect_inputs(std::string_view op, SpecSpan inputs, size_t least, size_t most) {
  if (inputs.size() >= least && inputs.size() <= most) return;
  fail(ExitCode::usage, "{}: expects {} inputs, got {}", op,
       least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most),
       inputs.size());
}

void expect_shape(std::string_view op, std::string_view what, const Shape& found,
                  const Shape& expected) {
  if (found == expected) return;
  fail(ExitCode::usage, "{}: {} has shape {}, expected {}", op, what, to_string(found),
       to_string(expected));
}

void expect_rank(std::string_view op, std::string_view what, const Shape& found, int least,
                 int most) {
  if (found.rank() >= least && found.rank() <= most) return;
  fail(ExitCode::usage, "{}: {} has shape {}, expected {} dimensions", op, what, to_string(found),
       least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most));
}

void expect_one_float_dtype(std::string_view op, SpecSpan inputs) {
  const TensorSpec* first = nullptr;
  for (const TensorSpec& spec : inputs) {
    if (is_absent(spec)) continue;
    if (!is_floating(spec.dtype)) {
      fail(ExitCode::usage, "{}: expects floating inputs, got {}", op, to_string(spec));
    }
    if (first == nullptr) first = &spec;
    if (spec.dtype != first->dtype) {
      fail(ExitCode::usage, "{}: inputs of different dtypes: {} and {}", op, to_string(*first),
           to_string(spec));
    }
  }
}

void expect_dtype(std::string_view op, std::string_view what, const TensorSpec& found,
                  DType expected) {
  if (found.dtype == expected) return;
  fail(ExitCode::usage, "{}: {} is {}, expected {}", op, what, to_string(found),
       dtype_name(expected));
}

void expect_step_state(std::string_view op, const TensorSpec& found) {
  expect_shape(op, "the step state", found.shape, Shape{sizeof(StepState)});
  expect_dtype(op, "the step state", found, DType::u8);
}

bool is_absent(const TensorSpec& spec) {
  return spec.dtype == DType::u8 && spec.shape == Shape{0};
}

ValueId cast_to(OpEmitter& emitter, ValueId value, DType dtype) {
  if (emitter.spec(value).dtype == dtype) return value;
  return emitter.emit1("cast", {value}, {{"dtype", std::string(dtype_name(dtype))}});
}

DType accumulation_dtype(DType compute) {
  return compute == DType::f64 ? DType::f64 : DType::f32;
}

bool is_product(const OpDef& op) {
  constexpr std::string_view kProducts[]{"matmul",
                                         "fp8_matmul",
                                         "conv2d",
                                         "conv2d_backward_input",
                                         "conv2d_backward_weight",
                                         "grouped_matmul",
                                         "grouped_matmul_backward_weight",
                                         "attention",
                                         "attention_backward",
                                         "recurrent",
                                         "recurrent_backward",
                                         "recurrent_network",
                                         "recurrent_network_backward"};
  return std::ranges::find(kProducts, op.name) != std::end(kProducts);
}

bool rounds_to_tf32(const Attributes& attributes) {
  return attributes.text("math") == "tf32";
}

Shape broadcast_shape(std::string_view op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    if (out[-i] == 1) out[-i] = shorter[-i];
    if (shorter[-i] != out[-i] && shorter[-i] != 1) {
      fail(ExitCode::usage, "{}: shapes {} and {} do not match", op, to_string(a), to_string(b));
    }
  }
  return out;
}

ValueId reduce_to_shape(OpEmitter& emitter, ValueId gradient, const Shape& shape) {
  const Shape full = emitter.spec(gradient).shape;
  if (full == shape) return gradient;
  std::vector<int64_t> axes;
  const int extra = full.rank() - shape.rank();
  for (int i = 0; i < full.rank(); ++i) {
    if (i < extra || (shape[i - extra] == 1 && full[i] != 1)) axes.push_back(i);
  }
  return emitter.reshape(emitter.emit1("reduce", {gradient}, {{"kind", "sum"}, {"axes", axes}}),
                         shape);
}

Attributes with_input_shape(const GradientRequest& r) {
  Attributes out = r.attributes;
  out.set("input_shape", r.emitter.spec(r.inputs[0]).shape.list());
  return out;
}

int64_t window_extent(std::string_view op, int64_t input, int64_t kernel, int64_t stride,
                      int64_t padding, int64_t dilation) {
  // Larger values could overflow the arithmetic below.
  constexpr int64_t kMax = int64_t{1} << 30;
  const bool sane = kernel >= 1 && kernel <= kMax && stride >= 1 && stride <= kMax &&
                    padding >= 0 && padding <= kMax && dilation >= 1 && dilation <= kMax &&
                    input <= kMax;
  const int64_t reach = sane ? (kernel - 1) * dilation + 1 : 0;
  const int64_t padded = sane ? input + 2 * padding : 0;
  if (!sane || reach > padded) {
    fail(ExitCode::usage,
         "{}: a window of {} (stride {}, padding {}, dilation {}) does not fit an extent of {}", op,
         kernel, stride, padding, dilation, input);
  }
  return (padded - reach) / stride + 1;
}

double bytes_moved(SpecSpan inputs, SpecSpan outputs) {
  double sum = 0;
  for (const SpecSpan specs : {inputs, outputs}) {
    for (const TensorSpec& spec : specs) sum += static_cast<double>(spec.bytes());
  }
  return sum;
}

}  // namespace dltrain
