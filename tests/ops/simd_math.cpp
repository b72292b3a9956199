// Errors of the vectorised functions in units in the last place of f32, against double.
#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "cpu/elementwise_steps.h"
#include "max_or_inf.h"

using namespace dltrain;

namespace {

float apply(ElementwiseOp op, float x) {
  float out = 0;
  elementwise_step(op, OperandKind::each, OperandKind::each, false)({&x, &x, &out, 1, 1, 20});
  return out;
}

// The greatest error over a grid of [low, high], in units in the last place of the exact value, or
// of `floor` where that is greater.
double worst_error(ElementwiseOp op, double low, double high, double floor = 0) {
  constexpr int kPoints = 200003;
  std::vector<float> x(kPoints), y(kPoints);
  for (int i = 0; i < kPoints; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(low + (high - low) * i / (kPoints - 1));
  }
  elementwise_step(op, OperandKind::each, OperandKind::each,
                   false)({x.data(), x.data(), y.data(), kPoints, 1, 20});
  double worst = 0;
  for (size_t i = 0; i < kPoints; ++i) {
    const double exact = elementwise<double>(op, x[i], 0, 1, 20);
    const auto size = static_cast<float>(std::max(std::abs(exact), floor));
    const double unit = std::nextafter(size, std::numeric_limits<float>::infinity()) - double{size};
    worst = max_or_inf(worst, std::abs(y[i] - exact) / unit);
  }
  return worst;
}

}  // namespace

TEST_CASE("vectorised functions are exact to a few units in the last place") {
  using enum ElementwiseOp;
  CHECK(worst_error(exp, -87, 88.7) < 2);
  CHECK(worst_error(exp, -103, -87) < 2);  // denormal results
  CHECK(worst_error(tanh, -10, 10) < 2.5);
  CHECK(worst_error(tanh, -1e-3, 1e-3) < 2);
  CHECK(worst_error(sigmoid, -80, 20) < 4);
  CHECK(worst_error(silu, -80, 20) < 4);
  CHECK(worst_error(gelu_tanh, -4, 6, 1e-3) < 16);
  CHECK(worst_error(quick_gelu, -4, 20) < 12);
  CHECK(worst_error(elu, -20, 20) < 4);
  CHECK(worst_error(selu, -20, 20) < 6);
  CHECK(worst_error(softplus, -20, 30) < 6);
  CHECK(worst_error(mish, -20, 30) < 6);
  CHECK(worst_error(hardswish, -4, 4, 1e-2) < 4);
  CHECK(worst_error(softsign, -20, 20) < 2);
  // The tail of Φ carries the rounding of x²/2, hence more units far out.
  CHECK(worst_error(gelu, -2, 6) < 8);
  CHECK(worst_error(gelu, -8, -2) < 64);
}

TEST_CASE("vectorised functions keep NaN and saturate at infinity") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kElementwiseCount; ++i) {
    const auto op = static_cast<ElementwiseOp>(i);
    if (elementwise_operands(op) != 1) continue;
    INFO(kElementwiseNames[i]);
    CHECK(std::isnan(apply(op, std::numeric_limits<float>::quiet_NaN())));
  }
  CHECK(apply(ElementwiseOp::exp, infinity) == infinity);
  CHECK(apply(ElementwiseOp::exp, -infinity) == 0);
  CHECK(apply(ElementwiseOp::tanh, infinity) == 1);
  CHECK(apply(ElementwiseOp::tanh, -infinity) == -1);
  CHECK(apply(ElementwiseOp::sigmoid, -infinity) == 0);
  CHECK(apply(ElementwiseOp::relu, -infinity) == 0);
  CHECK(apply(ElementwiseOp::log, 0) == -infinity);
  for (auto op : {ElementwiseOp::softplus, ElementwiseOp::mish, ElementwiseOp::quick_gelu}) {
    CHECK(apply(op, 1000) == 1000);
    CHECK(std::abs(apply(op, -1000)) == 0);
  }
}
