// Layers that contain layers: sequential, residual, branches, repeat; layers with several inputs:
// add, multiply, concat.
#include "base/error.h"
#include "nn/layer.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

enum class Merge : uint8_t { add, multiply, concat, mean };

// Axis 0, the samples, cannot be concatenated.
ValueId concatenate(LayerContext& c, std::span<const ValueId> values, int64_t axis) {
  const Shape shape = c.shape(values.front());
  const int64_t at = axis < 0 ? axis + shape.rank() : axis;
  if (at < 1 || at >= shape.rank()) {
    fail(ExitCode::usage, "axis {} of {}: expects one of the axes 1 to {}", axis, to_string(shape),
         shape.rank() - 1);
  }
  return c.builder().emit1("concat", {values.begin(), values.end()}, {{"axis", at}});
}

// Combines several values. add and mean need equal shapes; multiply lets later ones broadcast to
// the first (a gate [n, 1, 1, c] on images); concat joins them along the last axis.
ValueId merge(LayerContext& c, Merge how, std::span<const ValueId> values) {
  if (how == Merge::concat) return concatenate(c, values, -1);
  ValueId out = values.front();
  const Shape shape = c.shape(out);
  for (ValueId value : values.subspan(1)) {
    const Shape other = c.shape(value);
    const bool fits = how == Merge::multiply ? broadcast_shape("multiply", shape, other) == shape
                                             : other == shape;
    if (!fits) {
      fail(ExitCode::usage, "the shapes {} and {} cannot be combined", to_string(shape),
           to_string(other));
    }
    out = c.builder().emit1(how == Merge::multiply ? "mul" : "add", {out, value});
  }
  if (how == Merge::mean && values.size() > 1) {
    out = c.scaled(out, 1.0 / static_cast<double>(values.size()));
  }
  return out;
}

struct Sequential final : Layer {
  Layers layers;

  void describe(Fields& f) override {
    f.list_of("layers", layers, layer_table(),
              {.doc = "Applied one after the other; layer i is called <name>.i",
               .required = true,
               .min_size = 1});
  }
  ValueId emit(LayerContext& c, ValueId x) const override { return c.emit_list(layers, x); }
};

struct Residual final : Layer {
  Layers layers;
  Layers shortcut;

  void describe(Fields& f) override {
    f.list_of("layers", layers, layer_table(),
              {.doc = "Their output is added to the input; layer i is called <name>.i",
               .required = true,
               .min_size = 1});
    f.list_of("shortcut", shortcut, layer_table(),
              {.doc = "Applied to the input before the addition, if the shapes differ; layer i is "
                      "called <name>.shortcut.i",
               .known_as = {"downsample", "projection", "skip"}});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const ValueId body = c.emit_list(layers, x);
    const ValueId other = c.emit_list(shortcut, x, "shortcut");
    return merge(c, Merge::add, std::array{body, other});
  }
};

struct Branch : ConfigObject {
  static constexpr std::string_view kBareKey = "layers";
  std::optional<std::string> name;
  Layers layers;

  void describe(Fields& f) {
    f.text("name", name, {.doc = "Replaces its number in the names of its layers"});
    f.list_of("layers", layers, layer_table(),
              {.doc = "Applied one after the other; none: the branch is the input itself",
               .required = true});
  }
};

struct Branches final : Layer {
  std::vector<Branch> branches;
  Merge how = Merge::add;

  void describe(Fields& f) override {
    f.list("branches", branches,
           {.doc = "Lists of layers, each applied to the input; layer j of list i is called "
                   "<name>.i.j",
            .required = true,
            .min_size = 2});
    f.choice("merge", how,
             {{"add", Merge::add},
              {"multiply", Merge::multiply},
              {"concat", Merge::concat, "along the last axis: channels"},
              {"mean", Merge::mean}},
             {.doc = "How their outputs are combined", .required = true});
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < branches.size(); ++i) {
      outputs.push_back(c.emit_inside(branches[i].name.value_or(std::to_string(i)),
                                      [&] { return c.emit_list(branches[i].layers, x); }));
    }
    return merge(c, how, outputs);
  }
};

struct Repeat final : Layer {
  int64_t times = 0;
  bool share_parameters = false;
  std::string prefix;
  Layers layers;

  void describe(Fields& f) override {
    f.integer("times", times,
              {.doc = "Copies, each with parameters of its own unless share_parameters",
               .required = true,
               .min = 1,
               .max = 10'000,
               .known_as = {"count", "n", "num_layers"}});
    f.boolean("share_parameters", share_parameters,
              {.doc = "All copies use the parameters of the first, which has one gradient (ALBERT; "
                      "Lan et al. 2020)",
               .known_as = {"share", "tied", "cross_layer_sharing"}});
    f.text("prefix", prefix,
           {.doc = "Prefix of the number of a copy in the names of its layers: encoder_layer_"});
    f.list_of(
        "layers", layers, layer_table(),
        {.doc = "Applied one after the other, then the next copy; layer j of copy i is called "
                "<name>.i.j",
         .required = true,
         .min_size = 1});
  }
  void validate(Diagnostics& diagnostics) const override {
    if (share_parameters && name == ".") {
      diagnostics.add(*this, "share_parameters", "copies that share parameters need a name");
    }
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    const std::string first = prefix + "0";
    for (int64_t i = 0; i < times; ++i) {
      const GraphBuilder::Block block(c.builder());
      const auto copy = [&] { return c.emit_list(layers, x); };
      const std::string copy_name = prefix + std::to_string(i);
      if (name == ".") {
        x = copy();
      } else if (share_parameters && i > 0) {
        x = c.emit_copy(first, copy_name, copy);
      } else {
        x = c.emit_inside(copy_name, copy);
      }
    }
    return x;
  }
};

void expect_several(std::span<const ValueId> values) {
  if (values.size() < 2) {
    fail(ExitCode::usage, "takes at least two inputs; name them: inputs: [a, b]");
  }
}

struct Concat final : Layer {
  int64_t axis = -1;

  void describe(Fields& f) override {
    f.integer("axis", axis,
              {.doc = "Axis of the concatenation, where 0 is the samples; -1: the last, the "
                      "channels of images",
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

// Documents the key `block`, which is expanded before layers are read (nn/blocks.h).
struct Block final : Layer {
  void describe(Fields& f) override {
    f.rewritten("use", {.type = "name of a block", .schema = R"({"type": "string"})"},
                {.doc = "Name of a block in model.blocks", .required = true});
    f.rewritten("…", {.type = "arguments", .schema = "", .free_names = true},
                {.doc = "Values for the block's parameters"});
  }
  void validate(Diagnostics& diagnostics) const override {
    diagnostics.add(location, "a block needs 'use', the name of a block");
  }
};

}  // namespace

std::vector<KindRow<Layer>> structure_rows() {
  return {
      {"sequential", "layers one after the other", make_kind_of<Sequential>, "layers"},
      {"residual", "adds the output of its layers to their input", make_kind_of<Residual>,
       "layers"},
      {"branches", "lists of layers side by side on one input", make_kind_of<Branches>, "branches"},
      {"repeat", "repeats its layers", make_kind_of<Repeat>},
      {"add", "the sum of its inputs, which have equal shapes",
       make_kind_of<MergeLayer<Merge::add>>, "inputs"},
      {"multiply", "the product of its inputs; later ones may broadcast to the first",
       make_kind_of<MergeLayer<Merge::multiply>>, "inputs"},
      {"concat", "concatenates its inputs along an axis", make_kind_of<Concat>, "inputs"},
      {"block", "a part of the model from model.blocks", make_kind_of<Block>, "use"}};
}

}  // namespace dltrain
