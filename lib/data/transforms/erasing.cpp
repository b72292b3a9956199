// random_erasing: a random rectangle is painted over (Zhong et al., "Random erasing data
// augmentation", AAAI 2020). cutout: a square of fixed size, clipped at the borders (DeVries and
// Taylor, "Improved regularization of convolutional neural networks with cutout", 2017).
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

constexpr int kErasingTries = 10;

struct RandomErasing final : TransformOf<RandomErasing> {
  double probability = 0.5;
  std::array<double, 2> scale{0.02, 0.33};
  std::array<double, 2> ratio{0.3, 3.3};
  double fill = 0;

  void describe(Fields& f) override {
    describe_probability(f, probability);
    f.numbers(
        "scale", scale,
        {.doc = "Smallest and largest area, as a share of the image's", .max = 1, .above = 0});
    f.numbers("ratio", ratio, {.doc = "Smallest and largest width : height", .above = 0});
    describe_fill(f, fill);
  }
  void validate(Diagnostics& diagnostics) const override {
    validate_patch(*this, scale, ratio, diagnostics);
  }
  bool random() const override { return true; }
  bool moves_pixels() const override { return false; }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers& rng) const {
    if (rng.uniform() >= probability) return;
    const ImageSize size = frame.size();
    for (int i = 0; i < kErasingTries; ++i) {
      const double share = rng.between(scale[0], scale[1]);
      const double shape = std::exp(rng.between(std::log(ratio[0]), std::log(ratio[1])));
      const auto [height, width] = patch_size(size, share, shape);
      if (height < 1 || width < 1 || height > size.height || width > size.width) continue;
      const int64_t y = rng.below(size.height - height + 1);
      const int64_t x = rng.below(size.width - width + 1);
      fill_box(frame, y, x, height, width, fill);
      return;
    }
  }
};

struct Cutout final : TransformOf<Cutout> {
  std::vector<int64_t> size;
  double probability = 1;
  double fill = 0;

  void describe(Fields& f) override {
    describe_size(f, size, "[height, width] of the patch, or one number for both");
    describe_probability(f, probability);
    describe_fill(f, fill);
  }
  bool random() const override { return true; }
  bool moves_pixels() const override { return false; }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers& rng) const {
    if (rng.uniform() >= probability) return;
    const int64_t height = height_of(size), width = width_of(size);
    const int64_t y = rng.below(frame.size().height) - height / 2;
    const int64_t x = rng.below(frame.size().width) - width / 2;
    fill_box(frame, y, x, height, width, fill);
  }
};

}  // namespace

KindRow<Transform> random_erasing_row() {
  return {"random_erasing",
          "Paints over a random rectangle; keeps the label if enough remains visible",
          make_kind_of<RandomErasing>, "probability"};
}
KindRow<Transform> cutout_row() {
  return {"cutout",
          "Paints over a square at a random place; keeps the label if enough remains visible",
          make_kind_of<Cutout>, "size"};
}

}  // namespace dltrain
