// Convolutions over images [samples, height, width, channels].
//
// conv2d: the weight is [out, kernel height, kernel width, in/groups] in memory and
// [out, in/groups, kernel height, kernel width] in files, as in PyTorch.
//
// conv_transpose2d: the map that is the gradient of conv2d towards its input. The weight is
// [in, kernel height, kernel width, out/groups] in memory and [in, out/groups, kernel height,
// kernel width] in files, as in PyTorch.
#include "base/error.h"
#include "nn/image_keys.h"
#include "nn/layer.h"

namespace dltrain {
namespace {

struct Convolution : Layer {
  int64_t out_channels = 0;
  std::vector<int64_t> kernel_size;
  std::vector<int64_t> stride{1};
  std::vector<int64_t> padding{0};
  std::vector<int64_t> dilation{1};
  int64_t groups = 1;
  bool bias = true;

  void describe_channels(Fields& f, const char* doc) {
    f.integer("out_channels", out_channels,
              {.doc = doc,
               .required = true,
               .min = 1,
               .max = 1e6,
               .known_as = {"filters", "channels", "out_features"}});
    Key kernel = pair_key("Height and width of a filter", 1);
    kernel.required = true;
    kernel.known_as = {"kernel"};
    f.integers("kernel_size", kernel_size, kernel);
  }
  void describe_taps(Fields& f) {
    f.integers("dilation", dilation, pair_key("Distance between the taps of a filter", 1));
    f.integer("groups", groups,
              {.doc = "Independent groups of channels; must divide the input channels and "
                      "out_channels",
               .min = 1});
    f.boolean("bias", bias, {.doc = "Add a bias to each channel", .known_as = {"use_bias"}});
  }

  void check_groups(const Shape& x) const {
    expect_images(x);
    if (x[3] % groups == 0 && out_channels % groups == 0) return;
    fail(ExitCode::usage, "{} groups must divide {} input and {} output channels", groups, x[3],
         out_channels);
  }
  // PyTorch's default for weight and bias: uniform within 1/√fan_in, where fan_in counts the second
  // axis of the weight in files, `depth`, and the kernel.
  Initializer initial(int64_t depth) const {
    const auto kernel = both(kernel_size);
    return Initializer::uniform_for(kernel[0] * kernel[1] * depth);
  }
  ValueId weight(LayerContext& c, int64_t first, int64_t depth) const {
    const auto kernel = both(kernel_size);
    return c.parameter("weight", {first, kernel[0], kernel[1], depth}, initial(depth),
                       {Shape{first, depth, kernel[0], kernel[1]}, {0, 2, 3, 1}});
  }
  Attributes attributes() const {
    return {{"stride", both(stride)},
            {"padding", both(padding)},
            {"dilation", both(dilation)},
            {"groups", groups}};
  }
};

struct Conv2d final : Convolution {
  void describe(Fields& f) override {
    describe_channels(f, "Number of filters");
    f.integers("stride", stride, pair_key("Step between windows", 1));
    f.integers("padding", padding, pair_key("Zeros added on each side", 0));
    describe_taps(f);
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    check_groups(c.shape(x));
    const int64_t depth = c.shape(x)[3] / groups;
    std::vector<ValueId> inputs{x, weight(c, out_channels, depth)};
    if (bias) inputs.push_back(c.parameter("bias", {out_channels}, initial(depth)));
    return c.builder().emit1("conv2d", inputs, attributes());
  }
};

struct ConvTranspose2d final : Convolution {
  std::vector<int64_t> output_padding{0};

  void describe(Fields& f) override {
    describe_channels(f, "Number of channels of the result");
    f.integers("stride", stride, pair_key("Step between the windows that are added up", 1));
    f.integers("padding", padding, pair_key("Rows and columns removed on each side", 0));
    f.integers(
        "output_padding", output_padding,
        pair_key("Further rows and columns at the lower and right edge; less than stride", 0));
    describe_taps(f);
  }

  void validate(Diagnostics& diagnostics) const override {
    const auto step = both(stride), extra = both(output_padding);
    if (extra[0] >= step[0] || extra[1] >= step[1]) {
      diagnostics.add(*this, "output_padding", "output_padding must be less than stride");
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    check_groups(c.shape(x));
    const int64_t depth = out_channels / groups;
    Attributes how = attributes();
    how.set("input_shape", output_shape(c.shape(x)));
    const ValueId y =
        c.builder().emit1("conv2d_backward_input", {x, weight(c, c.shape(x)[3], depth)}, how);
    if (!bias) return y;
    return c.builder().emit1("add", {y, c.parameter("bias", {out_channels}, initial(depth))});
  }

  std::vector<int64_t> output_shape(const Shape& x) const {
    std::vector<int64_t> shape{x[0], 0, 0, out_channels};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t reach = (both(kernel_size)[i] - 1) * both(dilation)[i] + 1;
      shape[i + 1] = (x[static_cast<int>(i) + 1] - 1) * both(stride)[i] + reach -
                     2 * both(padding)[i] + both(output_padding)[i];
      if (shape[i + 1] < 1) {
        fail(ExitCode::usage, "padding {} leaves nothing of {}", both(padding)[i], to_string(x));
      }
    }
    return shape;
  }
};

}  // namespace

std::vector<KindRow<Layer>> conv2d_rows() {
  return {
      {"conv2d", "convolution over images", make_kind_of<Conv2d>},
      {"conv_transpose2d", "transposed convolution over images", make_kind_of<ConvTranspose2d>}};
}

}  // namespace dltrain
