// Average, adaptive and global pooling over images [samples, height, width, channels]. Windows as
// in PyTorch (ops/image_maps.h).
#include "nn/image_keys.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct AvgPool2d final : Layer {
  std::vector<int64_t> kernel_size;
  std::optional<std::vector<int64_t>> stride;
  std::vector<int64_t> padding{0};
  bool count_include_pad = true;
  bool ceil_mode = false;

  void describe(Fields& f) override {
    Key kernel = pair_key("Height and width of a window", 1);
    kernel.required = true;
    kernel.known_as = {"kernel", "pool_size"};
    f.integers("kernel_size", kernel_size, kernel);
    f.integers("stride", stride, pair_key("Step between windows; default: kernel_size", 1));
    f.integers("padding", padding, pair_key("Border on each side", 0));
    f.boolean("count_include_pad", count_include_pad,
              {.doc = "The border counts as zeros; else a mean is over what lies in the image"});
    describe_ceil_mode(f, ceil_mode);
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    Attributes attributes{{"kernel", both(kernel_size)},
                          {"stride", both(stride.value_or(kernel_size))},
                          {"padding", both(padding)},
                          {"count_include_pad", count_include_pad}};
    if (ceil_mode) attributes.set("ceil_mode", true);
    return c.builder().emit1("avg_pool2d", {x}, attributes);
  }
};

struct AdaptivePool2d : Layer {
  std::vector<int64_t> output_size;

  void describe(Fields& f) override {
    Key key = pair_key("Height and width of the result", 1);
    key.required = true;
    f.integers("output_size", output_size, key);
  }
  virtual const char* op() const = 0;
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    return c.builder().emit1(op(), {x}, {{"output_size", both(output_size)}});
  }
};
struct AdaptiveAvgPool2d final : AdaptivePool2d {
  const char* op() const override { return "avg_pool2d"; }
};
struct AdaptiveMaxPool2d final : AdaptivePool2d {
  const char* op() const override { return "adaptive_max_pool2d"; }
};

// The result has no axes of height and width: a vector a sample.
struct GlobalAvgPool2d final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    const ValueId mean =
        c.builder().emit1("reduce", {x}, {{"kind", "mean"}, {"axes", std::vector<int64_t>{1, 2}}});
    const DType dtype = c.builder().spec(x).dtype;
    if (c.builder().spec(mean).dtype == dtype) return mean;
    return c.builder().emit1("cast", {mean}, {{"dtype", std::string(dtype_name(dtype))}});
  }
};
struct GlobalMaxPool2d final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    const ValueId greatest = c.builder().emit1("adaptive_max_pool2d", {x},
                                               {{"output_size", std::vector<int64_t>{1, 1}}});
    const Shape shape = c.shape(x);
    return c.builder().emit1("reshape", {greatest},
                             {{"shape", std::vector<int64_t>{shape[0], shape[3]}}});
  }
};

}  // namespace

std::vector<KindRow<Layer>> pooling_rows() {
  return {
      {"avg_pool2d", "the mean of each window", make_kind_of<AvgPool2d>, "kernel_size"},
      {"adaptive_avg_pool2d", "means of windows that follow from the size of the result",
       make_kind_of<AdaptiveAvgPool2d>, "output_size"},
      {"adaptive_max_pool2d", "greatest values of windows that follow from the size of the result",
       make_kind_of<AdaptiveMaxPool2d>, "output_size"},
      {"global_avg_pool2d", "the mean of each channel: a vector a sample",
       make_kind_of<GlobalAvgPool2d>},
      {"global_max_pool2d", "the greatest value of each channel: a vector a sample",
       make_kind_of<GlobalMaxPool2d>}};
}

}  // namespace dltrain
