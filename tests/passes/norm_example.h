// The common part of small networks with norms that passes are tried on.
#pragma once

#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "graph/builder.h"

namespace dltrain {

struct NormExample {
  explicit NormExample(DType type) : dtype(type) {}

  DType dtype;
  Graph graph;
  GraphBuilder b{graph};
  std::vector<ValueId> parameters;

  ValueId relu(ValueId from) { return b.emit1("relu", {from}); }
  ValueId add(ValueId left, ValueId right) { return b.emit1("add", {left, right}); }
  // The mean of tanh(value).
  ValueId loss(ValueId value) {
    std::vector<int64_t> axes(static_cast<size_t>(b.spec(value).shape.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    ValueId sum = b.emit1("reduce", {b.emit1("tanh", {value})}, {{"kind", "mean"}, {"axes", axes}});
    if (dtype != DType::f64) sum = b.emit1("cast", {sum}, {{"dtype", "f64"}});
    b.accumulate(b.emit1("identity", {sum}), fmt::format("loss{}", sum), Role::metric);
    return sum;
  }
};

}  // namespace dltrain
