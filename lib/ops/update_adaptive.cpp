// Optimizers whose step depends on norms or sums of whole tensors. Inputs, names and the attributes
// that all optimizers share are those of update.cpp. The sums of LARS and LAMB are an op of their
// own, f64 [2] for each tensor: where ranks hold ranges of tensors, they add their sums up before
// the step (passes/zero.h). In a step that is not finite they are 0.
//
// lars_sums(step_state, p, g): Σp² and Σg².
// lars_update(…, [m], sums): You, Gitman & Ginsburg 2017, with the learning rate outside of the
//   velocity (as NVIDIA's and timm's): trust = trust_coefficient·‖p‖ / (‖g‖ + λ‖p‖ + epsilon) for
//   each tensor, 1 where λ or a norm is 0; m ← momentum·m + trust·(g + λp); p ← p − lr·m.
//   Attributes: momentum, trust_coefficient, epsilon; always_adapt (boolean, false): trust where λ
//   is 0 too.
// lamb_moments(step_state, p, g, m, v): You et al. 2020, algorithm 2: m and v as Adam's, Σp² and
//   Σu², u = (m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + epsilon) + λp.
// lamb_update(step_state, p, m, v, sums): trust = ‖p‖/‖u‖ for each tensor, 1 where λ or
//   a norm is 0; p ← p − lr·trust·u. Attributes: beta1, beta2, epsilon, always_adapt.
// Adafactor: Shazeer & Stern 2018, algorithms 4 and 5 without momentum, as torch.optim.Adafactor. A
// tensor of two axes and more is a matrix of its first axis by all others (PyTorch splits before
// the last axis: the same for matrices). ρ = t^beta2_decay. adafactor_sums(step_state, p, g): f64
// [1 + rows + columns]: Σp², Σg² of each row, of each column;
//   [1] for another tensor: Σp².
// adafactor_moments(step_state, p, g, r, c, sums): r ← r + ρ·(mean of g² over a row − r),
//   c ← c + ρ·(mean of g² over a column − c); and Σu², f64 [1], with u = g / √max(v, epsilon1²),
//   v = r·c / max(mean r, epsilon1). Other tensors keep v itself in place of r,
//   v ← v + ρ·(g² − v), and no c.
// adafactor_update(step_state, p, g, r, c, sums, squares): p ← (1 − lr·λ)p −
//   max(epsilon2, RMS p)·min(lr, 1/√t) / max(1, RMS u / d) · u, RMS p before the decay.
//   Attributes of the three: beta2_decay, epsilon1, epsilon2, d; range: for each tensor [begin,
//   rows, columns, dimension, runs, (offset, extent) of each run] where p, g (and v) are elements
//   from `begin` on of a shard of a tensor of so many rows (0: one axis) and columns; the runs are
//   the rows (dimension 0) or columns of the shard, none: all; absent: p and g are whole.
#include <algorithm>

#include "base/error.h"
#include "ops/definitions.h"
#include "ops/rules.h"
#include "ops/update.h"

namespace dltrain {

AdafactorMatrix adafactor_matrix(const Attributes& attributes, size_t tensor, const Shape& p) {
  const auto all = [](int64_t count) { return AdafactorMatrix::Axis{{{0, 0, count}}}; };
  const std::vector<int64_t> range = attributes.integers("range");
  if (range.empty()) {
    const bool factored = p.rank() > 1;
    const int64_t rows = factored ? p[0] : 1;
    const int64_t columns = factored ? p.elements(1, p.rank()) : p.elements();
    return {factored, rows, columns, 0, p.elements(), all(rows), all(columns)};
  }
  size_t at = 0;
  for (size_t t = 0; t < tensor; ++t) at += 5 + 2 * static_cast<size_t>(range[at + 4]);
  const int64_t rows = range[at + 1], columns = range[at + 2];
  AdafactorMatrix out{
      rows > 0,    std::max<int64_t>(rows, 1), columns, range[at], p.elements(), all(rows),
      all(columns)};
  AdafactorMatrix::Axis& cut = range[at + 3] == 0 ? out.row : out.column;
  int64_t in_shard = 0;
  const auto runs = static_cast<int>(range[at + 4]);
  for (int r = 0; r < runs; ++r) {
    const auto of = at + 5 + 2 * static_cast<size_t>(r);
    cut.runs[r] = {in_shard, range[of], range[of + 1]};
    in_shard += range[of + 1];
  }
  cut.run_count = std::max(runs, 1);
  return out;
}

std::vector<int64_t> adafactor_range(const Shape& whole, int64_t begin, int dimension,
                                     std::span<const CutRange> ranges) {
  const bool factored = whole.rank() > 1;
  const int64_t columns = factored ? whole.elements(1, whole.rank()) : whole.elements();
  std::vector<int64_t> out{begin, factored ? whole[0] : 0, columns, dimension, 0};
  if (!factored) return out;
  // A dimension after the first is repeated for each element of those between.
  const int64_t outer = dimension > 1 ? whole.elements(1, dimension) : 1;
  const int64_t inner = dimension > 0 ? whole.elements(dimension + 1, whole.rank()) : 1;
  for (int64_t o = 0; o < outer; ++o) {
    for (const CutRange& range : ranges) {
      out.push_back((o * whole[dimension] + range.offset) * inner);
      out.push_back(range.extent * inner);
      ++out[4];
    }
  }
  check_internal(out[4] <= AdafactorMatrix::Axis::kMostRuns, "a shard of too many parts");
  return out;
}

namespace {

// The roles after p and g: variances of rows and columns, sums, squares of the step.
void check_adafactor(SpecSpan inputs, const Attributes& attributes) {
  const auto count = static_cast<size_t>(attributes.integer("count", 1));
  check_update(inputs, attributes);
  for (size_t t = 0; t < count && inputs.size() > 1 + 2 * count; ++t) {
    const auto of = [&](size_t role) -> const TensorSpec& { return inputs[1 + role * count + t]; };
    const AdafactorMatrix matrix = adafactor_matrix(attributes, t, of(0).shape);
    expect_shape("adafactor", "the variance of rows", of(2).shape,
                 matrix.factored ? Shape{matrix.rows} : of(0).shape);
    if (matrix.factored || !is_absent(of(3))) {
      expect_shape("adafactor", "the variance of columns", of(3).shape,
                   matrix.factored ? Shape{matrix.columns} : Shape{0});
    }
    expect_shape("adafactor", "the sums", of(4).shape, Shape{matrix.sums()});
  }
}

SpecList infer_adafactor_sums(SpecSpan inputs, const Attributes& attributes) {
  SpecList out;
  for (size_t t = 0; t < (inputs.size() - 1) / 2; ++t) {
    const int64_t sums = adafactor_matrix(attributes, t, inputs[1 + t].shape).sums();
    out.push_back({Shape{sums}, DType::f64});
  }
  return out;
}

}  // namespace

constinit const OpDef kLarsSumsOp{.name = "lars_sums",
                                  .doc = "sums of squares of parameters and gradients",
                                  .signature = "step | p[*] g[*] -> sums[2]:f64",
                                  .check = check_update,
                                  .update = UpdateKind::sums};
constinit const OpDef kLarsUpdateOp{
    .name = "lars_update",
    .doc = "LARS over all parameters",
    .signature = "step | p[*] g[*] m[*]?@momentum sums[2]:f64 -> p! m!",
    .check = check_update,
    .update = UpdateKind::optimizer,
    .has_effect = true};
constinit const OpDef kLambMomentsOp{.name = "lamb_moments",
                                     .doc = "moments of LAMB, sums of squares of its directions",
                                     .signature = "step | p[*] g[*] m[*] v[*] -> m! v! sums[2]:f64",
                                     .check = check_update,
                                     .update = UpdateKind::sums,
                                     .has_effect = true};
constinit const OpDef kLambUpdateOp{.name = "lamb_update",
                                    .doc = "LAMB over all parameters",
                                    .signature = "step | p[*] m[*] v[*] sums[2]:f64 -> p!",
                                    .check = check_update,
                                    .update = UpdateKind::optimizer,
                                    .has_effect = true};
constinit const OpDef kAdafactorSumsOp{.name = "adafactor_sums",
                                       .doc = "sums of squares of rows, columns and parameters",
                                       .signature = "step | p[*] g[*]",
                                       .check = check_update,
                                       .infer = infer_adafactor_sums,
                                       .update = UpdateKind::sums};
constinit const OpDef kAdafactorMomentsOp{
    .name = "adafactor_moments",
    .doc = "variances of Adafactor, squares of its steps",
    .signature = "step | p[*] g[*] r[.] c[C]? sums[S]:f64 -> r! c! squares[1]:f64",
    .check = check_adafactor,
    .update = UpdateKind::sums,
    .has_effect = true};
constinit const OpDef kAdafactorUpdateOp{
    .name = "adafactor_update",
    .doc = "Adafactor over all parameters",
    .signature = "step | p[*] g[*] r[.] c[C]? sums[S]:f64 squares[1]:f64 -> p!",
    .check = check_adafactor,
    .update = UpdateKind::optimizer,
    .has_effect = true};

}  // namespace dltrain
