// conv2d: convolution over images [samples, height, width, channels]. The weight is [out, kernel
// height, kernel width, in/groups] in memory and [out, in/groups, kernel height, kernel width] in
// files, as PyTorch keeps it.
#include <cmath>

#include "base/error.h"
#include "nn/image_keys.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct Conv2d final : Layer {
  int64_t out_channels = 0;
  std::vector<int64_t> kernel_size;
  std::vector<int64_t> stride{1};
  std::vector<int64_t> padding{0};
  std::vector<int64_t> dilation{1};
  int64_t groups = 1;
  bool bias = true;

  void describe(Fields& f) override {
    f.integer("out_channels", out_channels,
              {.doc = "Number of filters",
               .required = true,
               .min = 1,
               .max = 1e6,
               .known_as = {"filters", "channels", "out_features"}});
    f.integers("kernel_size", kernel_size,
               {.doc = "Height and width of a filter; one number for both",
                .required = true,
                .min = 1,
                .max = 1024,
                .min_size = 1,
                .max_size = 2,
                .scalar_ok = true,
                .known_as = {"kernel"}});
    f.integers("stride", stride, pair_key("Step between windows", 1));
    f.integers("padding", padding, pair_key("Zeros added on each side", 0));
    f.integers("dilation", dilation, pair_key("Distance between the taps of a filter", 1));
    f.integer("groups", groups,
              {.doc = "Independent groups of channels; must divide the input channels and "
                      "out_channels",
               .min = 1});
    f.boolean("bias", bias, {.doc = "Add a bias to each channel", .known_as = {"use_bias"}});
  }

  // PyTorch's default: weight and bias uniform within 1/√fan_in.
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    const int64_t in = c.shape(x)[3];
    if (in % groups != 0 || out_channels % groups != 0) {
      fail(ExitCode::usage, "{} groups must divide {} input and {} output channels", groups, in,
           out_channels);
    }
    const auto kernel = both(kernel_size);
    const int64_t depth = in / groups;
    const double fan_in = static_cast<double>(kernel[0] * kernel[1] * depth);
    const auto init = Initializer::uniform_within(1.0 / std::sqrt(fan_in));
    const ValueId weight =
        c.parameter("weight", {out_channels, kernel[0], kernel[1], depth}, init,
                    {Shape{out_channels, depth, kernel[0], kernel[1]}, {0, 2, 3, 1}});
    std::vector<ValueId> inputs{x, weight};
    if (bias) inputs.push_back(c.parameter("bias", {out_channels}, init));
    return c.builder().emit1("conv2d", inputs,
                             {{"stride", both(stride)},
                              {"padding", both(padding)},
                              {"dilation", both(dilation)},
                              {"groups", groups}});
  }
};

struct MaxPool2d final : Layer {
  std::vector<int64_t> kernel_size;
  std::optional<std::vector<int64_t>> stride;
  std::vector<int64_t> padding{0};
  bool ceil_mode = false;

  void describe(Fields& f) override {
    Key kernel = pair_key("Height and width of a window", 1);
    kernel.required = true;
    kernel.known_as = {"kernel", "pool_size"};
    f.integers("kernel_size", kernel_size, kernel);
    f.integers("stride", stride, pair_key("Step between windows; default: kernel_size", 1));
    f.integers("padding", padding, pair_key("Border on each side; never wins", 0));
    describe_ceil_mode(f, ceil_mode);
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    Attributes attributes{{"kernel", both(kernel_size)},
                          {"stride", both(stride.value_or(kernel_size))},
                          {"padding", both(padding)}};
    if (ceil_mode) attributes.set("ceil_mode", true);
    return c.builder().emit1("max_pool2d", {x}, attributes);
  }
};

}  // namespace

std::vector<KindRow<Layer>> conv2d_rows() {
  return {
      {"conv2d", "convolution over images", make_kind_of<Conv2d>},
      {"max_pool2d", "the greatest value of each window", make_kind_of<MaxPool2d>, "kernel_size"}};
}

}  // namespace dltrain
