// fused_elementwise: several element-wise steps over operands of one shape, in one pass over
// memory.
//
// Inputs: any number of tensors of one shape and dtype. Attributes: program (ops/fused.h), results
// (list of operand numbers that are outputs). Made by the fuse pass after the reverse pass, so it
// has no gradient; its composed form is the oracle of its tests.
#include "ops/fused.h"

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

SpecList infer(SpecSpan inputs, const Attributes& attributes) {
  expect_inputs("fused_elementwise", inputs, 1, 16);
  for (const TensorSpec& spec : inputs) {
    expect_shape("fused_elementwise", "an input", spec.shape, inputs[0].shape);
  }
  return SpecList(attributes.integers("results").size(), inputs[0]);
}

Cost cost(SpecSpan inputs, SpecSpan outputs, const Attributes& attributes) {
  const auto steps = parse_fused_program(attributes.text("program"));
  Cost c{static_cast<double>(steps.size()) * static_cast<double>(inputs[0].shape.elements()), 0};
  for (const TensorSpec& spec : inputs) c.bytes += static_cast<double>(spec.bytes());
  for (const TensorSpec& spec : outputs) c.bytes += static_cast<double>(spec.bytes());
  return c;
}

}  // namespace

std::string print_fused_program(const std::vector<FusedStep>& steps) {
  std::string out;
  for (const FusedStep& step : steps) {
    out += out.empty() ? "" : "; ";
    out += step.op + "(";
    for (size_t i = 0; i < step.operands.size(); ++i) {
      out += fmt::format("{}{}", i ? ", " : "", step.operands[i]);
    }
    if (step.op == "affine") out += fmt::format("; {}, {}", step.scale, step.shift);
    out += ")";
  }
  return out;
}

std::vector<FusedStep> parse_fused_program(const std::string& text) {
  std::vector<FusedStep> steps;
  size_t at = 0;
  while (at < text.size()) {
    const size_t open = text.find('(', at), close = text.find(')', at);
    check_internal(open != std::string::npos && close != std::string::npos && open < close,
                   "fused program: {}", text);
    FusedStep step{.op = text.substr(at, open - at), .operands = {}};
    std::string inside = text.substr(open + 1, close - open - 1);
    if (const size_t semicolon = inside.find(';'); semicolon != std::string::npos) {
      const size_t comma = inside.find(',', semicolon);
      step.scale = std::stod(inside.substr(semicolon + 1, comma - semicolon - 1));
      step.shift = std::stod(inside.substr(comma + 1));
      inside.resize(semicolon);
    }
    for (size_t from = 0; from < inside.size();) {
      const size_t comma = std::min(inside.find(',', from), inside.size());
      step.operands.push_back(std::stoi(inside.substr(from, comma - from)));
      from = comma + 1;
    }
    steps.push_back(std::move(step));
    at = close + 1;
    if (text.compare(at, 2, "; ") == 0) at += 2;
  }
  return steps;
}

constinit const OpDef kFusedElementwiseOp{.name = "fused_elementwise",
                                          .doc = "a chain of element-wise ops in one pass",
                                          .infer = infer,
                                          .split = nullptr,
                                          .cost = cost,
                                          .in_place_allowed = true};

}  // namespace dltrain
