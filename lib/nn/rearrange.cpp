// Layers that change the order or shape of a sample's elements: reshape, transpose, slice, pad2d.
// They do not change axis 0, the samples.
#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "nn/layer.h"
#include "ops/gathered_parts.h"

namespace dltrain {
namespace {

struct Reshape final : Layer {
  std::vector<int64_t> shape;

  void describe(Fields& f) override {
    f.integers("shape", shape,
               {.doc = "Extents of a sample, without the samples axis; one of them may be -1 and "
                       "is then computed",
                .required = true,
                .min = -1,
                .min_size = 1,
                .max_size = Shape::kMaxRank - 1,
                .scalar_ok = true,
                .known_as = {"target_shape", "size"}});
  }

  void validate(Diagnostics& diagnostics) const override {
    int free = 0;
    for (int64_t extent : shape) {
      if (extent == 0) diagnostics.add(*this, "shape", "an extent of 0");
      free += extent == -1 ? 1 : 0;
    }
    if (free > 1) diagnostics.add(*this, "shape", "only one extent can follow from the others");
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape from = c.shape(x);
    const int64_t sample = from.elements(1, from.rank());
    int64_t known = 1;
    bool fits = true;
    for (int64_t extent : shape) {
      if (extent > 0) fits = fits && !__builtin_mul_overflow(known, extent, &known);
    }
    const bool free = std::find(shape.begin(), shape.end(), -1) != shape.end();
    fits = fits && (free ? sample % known == 0 : sample == known);
    if (!fits) {
      fail(ExitCode::usage, "the {} elements of a sample do not fit shape {}", sample, shape);
    }
    std::vector<int64_t> to{from[0]};
    for (int64_t extent : shape) to.push_back(extent == -1 ? sample / known : extent);
    return c.reshape(x, to);
  }
};

struct Transpose final : Layer {
  std::vector<int64_t> permutation;

  void describe(Fields& f) override {
    f.integers("permutation", permutation,
               {.doc = "Axis i of the result is axis permutation[i] of the input, as in "
                       "torch.permute; permutation[0] is 0, the samples",
                .required = true,
                .min = 0,
                .max = Shape::kMaxRank - 1,
                .min_size = 2,
                .max_size = Shape::kMaxRank,
                .known_as = {"axes", "dims", "perm"}});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (!permutation.empty() && permutation[0] != 0) {
      diagnostics.add(*this, "permutation", "the samples' axis 0 stays the first");
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    return c.builder().emit1("transpose", {x}, {{"permutation", permutation}});
  }
};

struct Slice final : Layer {
  int64_t axis = -1;
  int64_t start = 0;
  std::optional<int64_t> stop;

  void describe(Fields& f) override {
    f.integer("axis", axis,
              {.doc = "Axis to slice, not 0 (the samples); -1 is the last",
               .min = -Shape::kMaxRank,
               .max = Shape::kMaxRank - 1,
               .known_as = {"dim"}});
    f.integer("start", start, {.doc = "First element to keep; negative: counted from the end"});
    f.integer("stop", stop,
              {.doc = "One beyond the last element to keep; negative: counted from the end; "
                      "default: the end",
               .known_as = {"end"}});
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    const int64_t at = axis < 0 ? axis + shape.rank() : axis;
    if (at < 1 || at >= shape.rank()) {
      fail(ExitCode::usage, "axis {} of {}: expects one of the axes 1 to {}", axis,
           to_string(shape), shape.rank() - 1);
    }
    const int64_t extent = shape[static_cast<int>(at)];
    const int64_t end = stop.value_or(extent);
    const int64_t first = start < 0 ? start + extent : start, last = end < 0 ? end + extent : end;
    if (first < 0 || first >= last || last > extent) {
      fail(ExitCode::usage, "elements {} to {} of axis {} of {}", start, end, axis,
           to_string(shape));
    }
    return emit_range(c.builder(), x, static_cast<int>(at), {first, last - first});
  }
};

struct Pad2d final : Layer {
  std::vector<int64_t> padding;
  double value = 0;

  void describe(Fields& f) override {
    f.integers("padding", padding,
               {.doc = "Pixels added: one number for all sides, or four for left, right, top and "
                       "bottom, as in PyTorch",
                .required = true,
                .min = 0,
                .max = 4096,
                .scalar_ok = true});
    f.number("value", value, {.doc = "Value of the added pixels"});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (padding.size() != 1 && padding.size() != 4) {
      diagnostics.add(*this, "padding", "padding has one or four numbers");
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    const auto side = [&](size_t i) { return padding.size() == 1 ? padding[0] : padding[i]; };
    return c.builder().emit1("pad", {x},
                             {{"before", std::vector<int64_t>{0, side(2), side(0), 0}},
                              {"after", std::vector<int64_t>{0, side(3), side(1), 0}},
                              {"value", value}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> rearrange_rows() {
  return {{"reshape", "changes the shape of a sample, not the order of its elements",
           make_kind_of<Reshape>, "shape"},
          {"transpose", "reorders the axes of a sample", make_kind_of<Transpose>, "permutation"},
          {"slice", "part of one axis", make_kind_of<Slice>},
          {"pad2d", "a border around images", make_kind_of<Pad2d>, "padding"}};
}

}  // namespace dltrain
