// fused_elementwise: several element-wise steps over operands of one shape, in one pass over
// memory.
//
// Inputs: up to 16 tensors of one shape and dtype; the output is the result of the last step.
// Attributes: program (ops/fused.h), output_dtype (text): set where casts have been fused; inputs
// then are f32, bf16 or f16 in any mixture. Created by the fuse pass after the reverse pass, so it
// has no gradient; tests compare it with the unfused ops.
#include "ops/fused.h"

#include <charconv>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/elementwise.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Checks a step, an element-wise op over `known` earlier operands.
void expect_step(const FusedStep& step, size_t known) {
  const OpDef* op = find_op(step.op);
  check_internal(op != nullptr && op->elementwise, "fused_elementwise: {} is not element-wise",
                 step.op);
  check_internal(step.operands.size() == 1 || step.operands.size() == 2,
                 "fused_elementwise: {} of {} operands", step.op, step.operands.size());
  for (int operand : step.operands) {
    check_internal(operand >= 0 && static_cast<size_t>(operand) < known,
                   "fused_elementwise: {} reads operand {} of {}", step.op, operand, known);
  }
}

SpecList infer_fused(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("fused_elementwise", inputs, 1, 16);
  for (const TensorSpec& spec : inputs) {
    expect_shape("fused_elementwise", "an input", spec.shape, inputs[0].shape);
  }
  TensorSpec out = inputs[0];
  if (const std::string dtype = attributes.text("output_dtype"); dtype.empty()) {
    expect_one_float_dtype("fused_elementwise", inputs);
  } else {
    out.dtype = dtype_from_name(dtype).value();
    const bool one = fused_dtype(inputs, {&out, 1}).has_value();
    for (const TensorSpec& spec : inputs) {
      check_internal(one || spec.dtype == DType::f32 || is_low_precision(spec.dtype),
                     "fused_elementwise: {} among tensors of several dtypes",
                     dtype_name(spec.dtype));
    }
  }
  const auto steps = parse_fused_program(attributes.text("program"));
  check_internal(!steps.empty(), "fused_elementwise: no steps");
  for (size_t i = 0; i < steps.size(); ++i) expect_step(steps[i], inputs.size() + i);
  return {out};
}

// Parser of the text of a program; throws Error(internal) for anything unexpected.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text), rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) { check(take(token)); }
  std::string name() {
    const size_t length = rest_.find('(');
    check(length != std::string_view::npos && length > 0);
    const std::string out(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return out;
  }
  template <typename T>
  T number() {
    T out{};
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    check(error == std::errc());
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return out;
  }

 private:
  void check(bool fits) const {
    check_internal(fits, "fused program \"{}\", at \"{}\"", text_, rest_);
  }

  std::string_view text_, rest_;
};

Cost cost_fused(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const auto steps = parse_fused_program(attributes.text("program"));
  return {static_cast<double>(steps.size()) * static_cast<double>(inputs[0].shape.elements()),
          bytes_moved(inputs, outputs)};
}

}  // namespace

std::optional<DType> fused_dtype(SpecSpan inputs, SpecSpan outputs) {
  for (const SpecSpan list : {inputs, outputs}) {
    for (const TensorSpec& spec : list) {
      if (spec.dtype != inputs[0].dtype) return {};
    }
  }
  return inputs[0].dtype;
}

std::string print_fused_program(const std::vector<FusedStep>& steps) {
  std::string out;
  for (const FusedStep& step : steps) {
    out += out.empty() ? "" : "; ";
    out += step.op + "(";
    for (size_t i = 0; i < step.operands.size(); ++i) {
      out += fmt::format("{}{}", i ? ", " : "", step.operands[i]);
    }
    if (!elementwise_parameters(step.op).empty()) out += fmt::format("; {}, {}", step.p, step.q);
    out += ")";
  }
  return out;
}

std::vector<FusedStep> parse_fused_program(const std::string& text) {
  Reader reader(text);
  std::vector<FusedStep> steps;
  while (!reader.at_end()) {
    if (!steps.empty()) reader.expect("; ");
    FusedStep step{.op = reader.name(), .operands = {}};
    reader.expect("(");
    do {
      step.operands.push_back(reader.number<int>());
    } while (reader.take(", "));
    if (reader.take("; ")) {
      step.p = reader.number<double>();
      reader.expect(", ");
      step.q = reader.number<double>();
    }
    reader.expect(")");
    steps.push_back(std::move(step));
  }
  return steps;
}

constinit const OpDef kFusedElementwiseOp{.name = "fused_elementwise",
                                          .doc = "a chain of element-wise ops in one pass",
                                          .infer = infer_fused,
                                          .cost = cost_fused,
                                          .in_place_allowed = true};

}  // namespace dltrain
