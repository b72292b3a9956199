// add, multiply, concat: layers with several inputs.
#include "nn/merge.h"

#include "base/error.h"
#include "nn/layers.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

void expect_several(std::span<const ValueId> values) {
  if (values.size() < 2) {
    fail(ExitCode::usage, "takes at least two inputs; name them: inputs: [a, b]");
  }
}

// Axis 0, the samples, stays what it is.
ValueId concatenate(LayerContext& c, std::span<const ValueId> values, int64_t axis) {
  const Shape shape = c.shape(values.front());
  const int64_t at = axis < 0 ? axis + shape.rank() : axis;
  if (at < 1 || at >= shape.rank()) {
    fail(ExitCode::usage, "axis {} of {}: expects one of the axes 1 to {}", axis, to_string(shape),
         shape.rank() - 1);
  }
  return c.builder().emit1("concat", {values.begin(), values.end()}, {{"axis", at}});
}

struct Concat final : Layer {
  int64_t axis = -1;

  void describe(Fields& f) override {
    f.integer(
        "axis", axis,
        {.doc = "Along which its inputs are put one behind the other, counted with the samples "
                "as 0; -1: the last, the channels of images",
         .known_as = {"dim"}});
  }
  ValueId emit_inputs(LayerContext& c, std::span<const ValueId> values) const override {
    expect_several(values);
    return concatenate(c, values, axis);
  }
};

template <Merge how>
struct MergeLayer final : Layer {
  ValueId emit_inputs(LayerContext& c, std::span<const ValueId> values) const override {
    expect_several(values);
    return merge(c, how, values);
  }
};

}  // namespace

ValueId merge(LayerContext& c, Merge how, std::span<const ValueId> values) {
  if (how == Merge::concat) return concatenate(c, values, -1);
  ValueId out = values.front();
  const Shape shape = c.shape(out);
  for (ValueId value : values.subspan(1)) {
    const Shape other = c.shape(value);
    const bool fits = how == Merge::multiply ? broadcast_shape("multiply", shape, other) == shape
                                             : other == shape;
    if (!fits) {
      fail(ExitCode::usage, "the shapes {} and {} do not go together", to_string(shape),
           to_string(other));
    }
    out = c.builder().emit1(how == Merge::multiply ? "mul" : "add", {out, value});
  }
  if (how == Merge::mean && values.size() > 1) {
    const double share = 1.0 / static_cast<double>(values.size());
    out = c.builder().emit1("affine", {out}, {{"scale", share}, {"shift", 0.0}});
  }
  return out;
}

std::vector<KindRow<Layer>> merge_rows() {
  return {
      {"add", "the sum of its inputs, which have one shape", make_kind_of<MergeLayer<Merge::add>>,
       "inputs"},
      {"multiply", "the product of its inputs; later ones may broadcast to the first",
       make_kind_of<MergeLayer<Merge::multiply>>, "inputs"},
      {"concat", "its inputs one behind the other along an axis", make_kind_of<Concat>, "inputs"}};
}

}  // namespace dltrain
