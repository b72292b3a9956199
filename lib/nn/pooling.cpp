// Pooling and upsampling of images [samples, height, width, channels]. Windows are PyTorch's
// (ops/image_maps.h).
#include "base/error.h"
#include "nn/image_keys.h"
#include "nn/layer.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

struct WindowPool2d : Layer {
  std::vector<int64_t> kernel_size;
  std::optional<std::vector<int64_t>> stride;
  std::vector<int64_t> padding{0};
  bool ceil_mode = false;

  void describe_windows(Fields& f, const char* doc_of_padding, const char* limit = "",
                        double most = 1024) {
    Key kernel = pair_key(std::string("Height and width of a window") + limit, 1);
    kernel.max = most;
    kernel.required = true;
    kernel.known_as = {"kernel", "pool_size"};
    f.integers("kernel_size", kernel_size, kernel);
    f.integers("stride", stride, pair_key("Step between windows; default: kernel_size", 1));
    f.integers("padding", padding, pair_key(doc_of_padding, 0));
  }
  void describe_ceil_mode(Fields& f) {
    f.boolean("ceil_mode", ceil_mode,
              {.doc = "Also use a last window that starts before the end of the border and reaches "
                      "beyond it"});
  }
  ValueId pool(LayerContext& c, ValueId x, const char* op, Attributes attributes) const {
    expect_images(c.shape(x));
    attributes.set("kernel", both(kernel_size));
    attributes.set("stride", both(stride.value_or(kernel_size)));
    attributes.set("padding", both(padding));
    if (ceil_mode) attributes.set("ceil_mode", true);
    return c.builder().emit1(op, {x}, attributes);
  }
};

struct MaxPool2d final : WindowPool2d {
  void describe(Fields& f) override {
    describe_windows(f, "Border on each side, which is never the maximum",
                     ", which has at most 255 pixels", 255);
    describe_ceil_mode(f);
  }
  ValueId emit(LayerContext& c, ValueId x) const override { return pool(c, x, "max_pool2d", {}); }
};

struct AvgPool2d final : WindowPool2d {
  bool count_include_pad = true;

  void describe(Fields& f) override {
    describe_windows(f, "Border on each side");
    f.boolean(
        "count_include_pad", count_include_pad,
        {.doc = "Count the border as zeros; otherwise means are over pixels of the image only"});
    describe_ceil_mode(f);
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    return pool(c, x, "avg_pool2d", {{"count_include_pad", count_include_pad}});
  }
};

template <bool max>
struct AdaptivePool2d final : Layer {
  std::vector<int64_t> output_size;

  void describe(Fields& f) override {
    Key key = pair_key("Height and width of the result", 1);
    key.required = true;
    f.integers("output_size", output_size, key);
  }
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    return c.builder().emit1(max ? "adaptive_max_pool2d" : "avg_pool2d", {x},
                             {{"output_size", both(output_size)}});
  }
};

// Pools height and width to one vector per sample.
struct GlobalAvgPool2d final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    const ValueId mean =
        c.builder().emit1("reduce", {x}, {{"kind", "mean"}, {"axes", std::vector<int64_t>{1, 2}}});
    return cast_to(c.builder(), mean, c.builder().spec(x).dtype);
  }
};
struct GlobalMaxPool2d final : Layer {
  ValueId emit(LayerContext& c, ValueId x) const override {
    expect_images(c.shape(x));
    const ValueId greatest = c.builder().emit1("adaptive_max_pool2d", {x},
                                               {{"output_size", std::vector<int64_t>{1, 1}}});
    const Shape shape = c.shape(x);
    return c.reshape(greatest, {shape[0], shape[3]});
  }
};

struct Upsample2d final : Layer {
  std::optional<std::vector<int64_t>> scale_factor, output_size;
  std::string mode = "nearest";
  bool align_corners = false;

  void describe(Fields& f) override {
    f.integers("scale_factor", scale_factor, pair_key("Factor of height and width", 1));
    Key size = pair_key("Height and width of the result, instead of scale_factor", 1);
    size.max = 65536;
    size.known_as = {"size"};
    f.integers("output_size", output_size, size);
    f.choice("mode", mode,
             {{"nearest", "nearest", "repeats pixels"}, {"bilinear", "bilinear", "interpolates"}},
             {.doc = "How new pixels are computed", .known_as = {"interpolation"}});
    f.boolean("align_corners", align_corners,
              {.doc = "bilinear: align the centres of the corner pixels instead of the corners of "
                      "the image"});
  }

  void validate(Diagnostics& diagnostics) const override {
    if (scale_factor.has_value() == output_size.has_value()) {
      diagnostics.add(location, "upsample2d needs scale_factor or output_size, and not both");
    }
    if (align_corners && mode != "bilinear") {
      diagnostics.add(*this, "align_corners", "align_corners needs mode: bilinear");
    }
  }

  ValueId emit(LayerContext& c, ValueId x) const override {
    const Shape shape = c.shape(x);
    expect_images(shape);
    std::vector<int64_t> size = both(output_size ? *output_size : *scale_factor);
    for (size_t i = 0; scale_factor && i < 2; ++i) {
      const int64_t extent = shape[static_cast<int>(i) + 1];
      if (extent > (int64_t{1} << 30)) fail(ExitCode::usage, "images of {}", to_string(shape));
      size[i] *= extent;
    }
    Attributes attributes{{"output_size", size}, {"mode", mode}};
    if (mode == "bilinear") attributes.set("align_corners", align_corners);
    return c.builder().emit1("upsample2d", {x}, attributes);
  }
};

}  // namespace

std::vector<KindRow<Layer>> pooling_rows() {
  return {
      {"max_pool2d", "the largest value of each window", make_kind_of<MaxPool2d>, "kernel_size"},
      {"avg_pool2d", "the mean of each window", make_kind_of<AvgPool2d>, "kernel_size"},
      {"adaptive_avg_pool2d", "means of windows, which the size of the result defines",
       make_kind_of<AdaptivePool2d<false>>, "output_size"},
      {"adaptive_max_pool2d", "largest values of windows, which the size of the result defines",
       make_kind_of<AdaptivePool2d<true>>, "output_size"},
      {"global_avg_pool2d", "the mean of each channel: a vector a sample",
       make_kind_of<GlobalAvgPool2d>},
      {"global_max_pool2d", "the largest value of each channel: a vector a sample",
       make_kind_of<GlobalMaxPool2d>},
      {"upsample2d", "changes the size of images", make_kind_of<Upsample2d>, "scale_factor"}};
}

}  // namespace dltrain
