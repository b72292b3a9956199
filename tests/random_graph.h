// Random graphs for property tests: element-wise ops with shared, broadcast and repeated operands,
// matmuls with and without activations after them, reshapes, reductions, and sums over the step.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/philox.h"
#include "graph/builder.h"

namespace dltrain {

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, DType dtype) : builder_(graph_), seed_(seed), dtype_(dtype) {
    values_.push_back(builder_.add_value("x", {Shape{kRows, kColumns}, dtype}, Role::input));
    for (int i = 0; i < 3; ++i) {
      const auto name = fmt::format("p{}", i);
      const TensorSpec spec{i == 0 ? Shape{kColumns} : Shape{kColumns, kColumns}, dtype};
      parameters_.push_back(builder_.add_value(name, spec, Role::parameter));
    }
    for (int i = 0; i < 24; ++i) values_.push_back(random_node());
    for (int i = 0; i < 3; ++i) add_sum(fmt::format("sum{}", i));
  }

  Graph& graph() { return graph_; }
  // Scalar f64 [1] sums that depend on the input, and mostly on the parameters.
  const std::vector<ValueId>& losses() const { return losses_; }
  const std::vector<ValueId>& parameters() const { return parameters_; }

 private:
  static constexpr int64_t kRows = 4, kColumns = 6;

  uint32_t draw(uint32_t below) {
    return random_bits(seed_, random_stream("random graph"), 0, draws_++) % below;
  }
  // Recent values are likelier, so that chains arise.
  ValueId pick() {
    const uint32_t back = std::min(draw(3), draw(static_cast<uint32_t>(values_.size())));
    return values_[values_.size() - 1 - back];
  }

  // Ops whose values and slopes stay moderate for any input.
  ValueId random_node() {
    static const char* const kUnary[] = {"relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"};
    static const char* const kBinary[] = {"add", "sub", "mul"};
    const ValueId x = pick();
    switch (draw(7)) {
      case 0:
        return builder_.emit1(kBinary[draw(2)], {x, parameters_[0]});  // broadcast
      case 1:
        return builder_.emit1("matmul", {x, parameters_[1 + draw(2)], parameters_[0]},
                              {{"transpose_b", draw(2) == 0}});
      case 2:
        return there_and_back(x);
      case 3:
        return builder_.emit1("affine", {x}, {{"scale", 0.75}, {"shift", -0.125}});
      case 4:
        return builder_.emit1(kBinary[draw(3)], {x, builder_.emit1("tanh", {pick()})});
      default:
        return builder_.emit1(kUnary[draw(6)], {x});
    }
  }

  ValueId there_and_back(ValueId x) {
    const ValueId flat =
        builder_.emit1("reshape", {x}, {{"shape", std::vector<int64_t>{kRows * kColumns}}});
    return builder_.emit1("reshape", {builder_.emit1("sigmoid", {flat})},
                          {{"shape", std::vector<int64_t>{kRows, kColumns}}});
  }

  void add_sum(const std::string& name) {
    ValueId sum = builder_.emit1("reduce", {pick()},
                                 {{"kind", "mean"}, {"axes", std::vector<int64_t>{0, 1}}});
    if (dtype_ != DType::f64) sum = builder_.emit1("cast", {sum}, {{"dtype", "f64"}});
    losses_.push_back(sum);
    builder_.accumulate(builder_.emit1("identity", {sum}), name, Role::metric);
  }

  Graph graph_;
  GraphBuilder builder_;
  uint64_t seed_;
  DType dtype_;
  uint64_t draws_ = 0;
  std::vector<ValueId> values_, parameters_, losses_;
};

}  // namespace dltrain
