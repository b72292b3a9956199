// upsample2d: images at another size, by a whole factor or to a given size.
#include "base/error.h"
#include "nn/image_keys.h"
#include "nn/layers.h"

namespace dltrain {
namespace {

struct Upsample2d final : Layer {
  std::optional<std::vector<int64_t>> scale_factor, output_size;
  std::string mode = "nearest";
  bool align_corners = false;

  void describe(Fields& f) override {
    f.integers("scale_factor", scale_factor, pair_key("Times larger", 1));
    Key size = pair_key("Height and width of the result, instead of scale_factor", 1);
    size.max = 65536;
    size.known_as = {"size"};
    f.integers("output_size", output_size, size);
    f.choice("mode", mode,
             {{"nearest", "nearest", "repeats pixels"}, {"bilinear", "bilinear", "interpolates"}},
             {.doc = "How new pixels follow from old ones", .known_as = {"interpolation"}});
    f.boolean("align_corners", align_corners,
              {.doc = "bilinear: the centres of the corner pixels stay where they are, instead of "
                      "the corners of the image"});
  }

  void validate(Problems& problems) const override {
    if (scale_factor.has_value() == output_size.has_value()) {
      problems.add(place, "upsample2d needs scale_factor or output_size, and not both");
    }
    if (align_corners && mode != "bilinear") {
      problems.add(*this, "align_corners", "align_corners needs mode: bilinear");
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

std::vector<KindRow<Layer>> upsample2d_rows() {
  return {{"upsample2d", "images at another size", make_kind_of<Upsample2d>, "scale_factor"}};
}

}  // namespace dltrain
