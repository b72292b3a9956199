// Compares an engine with the reference engine over the whole case table. Free of the test
// framework: tests and the GPU check program call it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ops/runner.h"

namespace dltrain {

// How far two lists of outputs are from each other.
struct Difference {
  double worst = 0;   // greatest |found − expected| over the greatest |expected| of its tensor
  std::string where;  // "output 0[17]: 1.5, expected 1.25"; "" when nothing differs
};

// Floating tensors by value (an equal infinity or NaN is no difference), a StepState field by
// field, other tensors must be equal.
Difference difference(const std::vector<HostTensor>& found,
                      const std::vector<HostTensor>& expected);

// One comparison of one case.
struct CaseReport {
  const OpCase* op_case = nullptr;
  std::string how;      // "overwrite", "accumulate", "in place of input 0"
  std::string variant;  // of the kernel
  double worst = 0;     // relative difference; the limit is op_case->tolerance
  std::string fault;    // "" when the case passed
};

// Runs every case for which `wanted` is true in `floating` on `engine` and, on the same numbers, in
// f64 on the reference engine: overwriting, accumulating where a row says so, and in place where
// the op allows it. A missing kernel is a fault. In bf16 and f16, outputs of that dtype may be off
// by its rounding; outputs in f32 keep the case's tolerance. `after_case` gets the reports of each
// case; the comparison ends where it returns false. `unaligned`: see OpRunner.
std::vector<CaseReport> compare_engine(
    const Engine& engine, const Engine& reference,
    const std::function<bool(const OpCase&)>& wanted = [](const OpCase&) { return true; },
    DType floating = DType::f32,
    const std::function<bool(std::span<const CaseReport>)>& after_case =
        [](std::span<const CaseReport>) { return true; },
    bool unaligned = false);

// Half the distance between neighbours, relative to their magnitude: 2⁻⁸ in bf16, 2⁻¹¹ in f16; 0
// for other dtypes.
double unit_roundoff(DType dtype);

// Has the engine a row for this op? The CUDA engine lacks some (`dltrain list ops` shows which): a
// configuration that needs one is refused there.
bool has_kernel(const Engine& engine, std::string_view op);

}  // namespace dltrain
