#include "ops/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/kernel.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

bool is_state(const TensorSpec& spec) {
  return spec.dtype == DType::u8 && spec.shape == Shape{sizeof(StepState)};
}

// The fields of a StepState as tensors of their own. Norm and factor of a step that is not finite
// are not defined: nothing reads them.
std::vector<HostTensor> state_fields(const HostTensor& tensor) {
  StepState s;
  std::memcpy(&s, tensor.data.data(), sizeof s);
  std::vector<HostTensor> out;
  for (double value :
       {static_cast<double>(s.in.seed), static_cast<double>(s.in.step),
        static_cast<double>(s.in.sample_offset), s.in.learning_rate, s.out.loss_scale,
        s.in.inverse_valid, s.in.max_grad_norm, s.in.max_grad_value,
        static_cast<double>(s.out.finite), static_cast<double>(s.out.updates),
        static_cast<double>(s.out.scale_streak), s.out.finite != 0 ? s.out.grad_norm : 0,
        s.out.finite != 0 ? s.out.gradient_factor : 0}) {
    out.emplace_back(TensorSpec{Shape{1}, DType::f64});
    out.back().set(0, value);
  }
  return out;
}

double element_difference(const HostTensor& found, const HostTensor& expected, int64_t i,
                          double scale) {
  const double a = found.get(i), b = expected.get(i);
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::abs(a - b) / scale;
  return std::isfinite(d) && is_floating(found.spec.dtype)
             ? d
             : std::numeric_limits<double>::infinity();
}

void tensor_difference(const HostTensor& found, const HostTensor& expected, size_t output,
                       Difference& worst) {
  double scale = 0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    if (std::isfinite(expected.get(i))) scale = std::max(scale, std::abs(expected.get(i)));
  }
  scale = std::max(scale, 1e-30);
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double d = element_difference(found, expected, i, scale);
    if (d <= worst.worst) continue;
    worst = {
        d, fmt::format("output {}[{}]: {}, expected {}", output, i, found.get(i), expected.get(i))};
  }
}

// Codes of moments in 8 bits may be the neighbour where a value lies between two, one in a
// thousand: a GPU rounds the value otherwise in its last bit.
std::string wrong_codes(const HostTensor& found, const HostTensor& expected) {
  int64_t neighbours = 0;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double d = std::abs(found.get(i) - expected.get(i));
    neighbours += d == 1 ? 1 : 0;
    if (d > 1) return fmt::format("[{}]: {}, expected {}", i, found.get(i), expected.get(i));
  }
  if (neighbours <= 1 + expected.elements() / 1000) return {};
  return fmt::format(" has {} neighbours of the expected codes", neighbours);
}

// Compares one way of running a case.
class CaseComparison {
 public:
  CaseComparison(const OpCase& c, DType floating, OpRunner& tested, OpRunner& reference)
      : case_(c), tested_(tested) {
    run_ = {.op = c.op, .attributes = case_attributes(c, floating), .inputs = {}};
    run_.inputs = case_inputs(c, floating);
    OpRun exact{.op = c.op, .attributes = case_attributes(c, DType::f64), .inputs = {}};
    for (const TensorSpec& spec : case_specs(c, DType::f64)) {
      exact.inputs.push_back(converted(run_.inputs[exact.inputs.size()], spec.dtype));
    }
    tested.add_kept(run_);
    reference.add_kept(exact);
    expected_ = reference.run(exact).outputs;
    outputs_ = find_op(c.op)->output_specs(specs_of(run_.inputs), run_.attributes);
  }

  void overwrite(std::vector<CaseReport>& reports) {
    compare(run_, expected_, "overwrite", reports);
  }

  void accumulate(std::vector<CaseReport>& reports) {
    OpRun run = run_;
    run.accumulate = true;
    auto expected = expected_;
    for (size_t i = 0; i < expected.size(); ++i) {
      run.previous.push_back(
          random_tensor(outputs_[i], fmt::format("{} previous output {}", case_.name, i)));
      for (int64_t k = 0; k < expected[i].elements(); ++k) {
        expected[i].set(k, expected[i].get(k) + run.previous[i].get(k));
      }
    }
    compare(run, expected, "accumulate", reports);
  }

  void in_place(std::vector<CaseReport>& reports) {
    const OpDef& op = *find_op(case_.op);
    if (!op.in_place_allowed) return;
    const TensorSpec y = op.output_specs(specs_of(run_.inputs), run_.attributes).front();
    for (size_t i = 0; i < run_.inputs.size(); ++i) {
      if (!(run_.inputs[i].spec == y)) continue;
      OpRun run = run_;
      run.in_place = static_cast<int>(i);
      compare(run, expected_, fmt::format("in place of input {}", i), reports);
    }
  }

 private:
  void compare(const OpRun& run, const std::vector<HostTensor>& expected, const std::string& how,
               std::vector<CaseReport>& reports) {
    CaseReport report;
    report.op_case = &case_;
    report.how = how;
    try {
      const OpResult result = tested_.run(run);
      if (!result.served) return;
      report.variant = result.variant;
      // Kernels round between their steps to the dtype of their first tensor, or to TF32, which has
      // the precision of f16.
      const DType first = run.inputs[0].spec.dtype;
      const bool tf32 = rounds_factors(case_) && first == DType::f32;
      // cuDNN's convolutions and cuBLASLt's products round their sums to the operands' dtype before
      // a bias, an activation, an addition or a conversion, and cut factors to TF32 where others
      // round them (docs/equality.md).
      const bool vendor = result.variant == "cuBLASLt" ||
                          (result.variant == "cuDNN" && run.op.starts_with("conv2d"));
      const double roundings = std::max(case_.roundings, vendor ? (tf32 ? 4.0 : 2.0) : 0.0);
      // Hopper's tensor cores add products of FP8 with about 14 bits (DeepSeek-V3 2024, 3.3.2).
      const bool few_bits = vendor && run.op == "fp8_matmul";
      const double between =
          few_bits ? 0x1p-12 : roundings * unit_roundoff(tf32 ? DType::f16 : first);
      for (size_t i = 0; i < expected.size(); ++i) {
        if (find_op(run.op)->keeps_bytes && expected[i].spec.dtype == DType::u8) continue;
        // cuDNN's attention draws its own mask (docs/equality.md), which the sums do not have.
        const bool draws = result.variant == "cuDNN" && run.attributes.number("dropout") > 0;
        if (draws && (run.op != "attention" || i == 0)) continue;
        if (run.op.ends_with("_update") && expected[i].spec.dtype == DType::u8 &&
            !is_state(expected[i].spec)) {
          const std::string wrong = wrong_codes(result.outputs[i], expected[i]);
          if (!wrong.empty()) report.fault += fmt::format("output {}{}; ", i, wrong);
          continue;
        }
        const Difference d = difference({result.outputs[i]}, {expected[i]});
        report.worst = std::max(report.worst, d.worst);
        const double rounding = std::max(unit_roundoff(outputs_[i].dtype), between);
        if (d.worst <= std::max(case_.tolerance, rounding)) continue;
        report.fault += fmt::format("output {}{}; ", i, d.where.substr(d.where.find('[')));
      }
      for (const std::string& fault : result.faults) {
        report.fault += (report.fault.empty() ? "" : "; ") + fault;
      }
    } catch (const Error& error) {
      report.fault = error.what();
    }
    reports.push_back(std::move(report));
  }

  const OpCase& case_;
  OpRunner& tested_;
  OpRun run_;
  std::vector<HostTensor> expected_;
  SpecList outputs_;  // of the tested run
};

}  // namespace

Difference difference(const std::vector<HostTensor>& found,
                      const std::vector<HostTensor>& expected) {
  Difference worst;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (is_state(expected[i].spec)) {
      const auto found_fields = state_fields(found[i]), fields = state_fields(expected[i]);
      for (size_t k = 0; k < fields.size(); ++k) {
        tensor_difference(found_fields[k], fields[k], i, worst);
      }
    } else {
      tensor_difference(found[i], expected[i], i, worst);
    }
  }
  return worst;
}

bool has_kernel(const Engine& engine, std::string_view op) {
  return std::any_of(engine.kernels, engine.kernels + engine.kernel_count,
                     [&](const KernelRow& row) { return row.op == op; });
}

double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0;
}

std::vector<CaseReport> compare_engine(
    const Engine& engine, const Engine& reference, const std::function<bool(const OpCase&)>& wanted,
    DType floating, const std::function<bool(std::span<const CaseReport>)>& after_case,
    bool unaligned) {
  OpRunner tested(engine, 0, unaligned), oracle(reference, 0, false, 1);
  std::vector<CaseReport> reports;
  for (const OpCase& c : op_cases()) {
    if (!wanted(c)) continue;
    const size_t first = reports.size();
    CaseComparison comparison(c, floating, tested, oracle);
    comparison.overwrite(reports);
    comparison.accumulate(reports);
    comparison.in_place(reports);
    if (!after_case(std::span(reports).subspan(first))) break;
  }
  return reports;
}

}  // namespace dltrain
