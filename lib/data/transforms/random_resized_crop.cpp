// random_resized_crop: a part of random area and proportions at a random place, resized to one size
// (Szegedy et al., "Going deeper with convolutions", CVPR 2015; the draws follow torchvision's
// RandomResizedCrop).
#include "data/resample.h"
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

constexpr int kRandomResizedCropTries = 10;
// For evaluation the shorter side is resized to this multiple of the cropped size: 256 for 224.
constexpr double kEvaluationMargin = 256.0 / 224.0;

struct RandomResizedCropPart {
  int64_t y, x, height, width;
};

struct RandomResizedCrop final : TransformOf<RandomResizedCrop> {
  std::vector<int64_t> size;
  std::array<double, 2> scale{0.08, 1.0};
  std::array<double, 2> ratio{3.0 / 4, 4.0 / 3};

  void describe(Fields& f) override {
    describe_size(f, size, "Size of the result: [height, width], or one number for both");
    f.numbers("scale", scale,
              {.doc = "Smallest and largest area of the part, as a share of the image's",
               .max = 1,
               .above = 0});
    f.numbers("ratio", ratio,
              {.doc = "Smallest and largest width : height of the part", .above = 0});
  }
  void validate(Diagnostics& diagnostics) const override {
    validate_patch(*this, scale, ratio, diagnostics);
  }
  bool random() const override { return true; }
  ImageSize output(const ImageSize& in) const override {
    return {height_of(size), width_of(size), in.channels};
  }
  void add_for_evaluation(std::vector<std::shared_ptr<const Transform>>& out) const override {
    const int64_t longer = std::max(height_of(size), width_of(size));
    out.push_back(make_resize({std::llround(static_cast<double>(longer) * kEvaluationMargin)}));
    out.push_back(make_center_crop(size, 0));
  }

  // Draws a part in pixels of the full image.
  RandomResizedCropPart draw(const ImageSize& full, RandomNumbers& rng) const {
    for (int i = 0; i < kRandomResizedCropTries; ++i) {
      const double share = rng.between(scale[0], scale[1]);
      const double shape = std::exp(rng.between(std::log(ratio[0]), std::log(ratio[1])));
      const auto [height, width] = patch_size(full, share, shape);
      const double down = rng.uniform(), across = rng.uniform();
      if (height < 1 || width < 1 || height > full.height || width > full.width) continue;
      const auto offset = [](double u, int64_t room) {
        return std::min(static_cast<int64_t>(u * static_cast<double>(room + 1)), room);
      };
      return {offset(down, full.height - height), offset(across, full.width - width), height,
              width};
    }
    // If no part fits, the middle with an allowed ratio is used.
    RandomResizedCropPart part{0, 0, full.height, full.width};
    const double in_ratio = static_cast<double>(full.width) / static_cast<double>(full.height);
    if (in_ratio < ratio[0]) {
      part.height = std::llround(static_cast<double>(full.width) / ratio[0]);
    } else if (in_ratio > ratio[1]) {
      part.width = std::llround(static_cast<double>(full.height) * ratio[1]);
    }
    part.height = std::clamp<int64_t>(part.height, 1, full.height);
    part.width = std::clamp<int64_t>(part.width, 1, full.width);
    part.y = (full.height - part.height) / 2;
    part.x = (full.width - part.width) / 2;
    return part;
  }

  double needed_scale(const ImageSize& full, RandomNumbers rng) const override {
    const RandomResizedCropPart part = draw(full, rng);
    return std::max(static_cast<double>(height_of(size)) / static_cast<double>(part.height),
                    static_cast<double>(width_of(size)) / static_cast<double>(part.width));
  }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers& rng) const {
    const ImageSize full = frame.full(), size_now = frame.size();
    const RandomResizedCropPart part = draw(full, rng);
    if (!frame.reduced()) {
      frame.crop(part.y, part.x, part.height, part.width);
      resample(frame, height_of(size), width_of(size));
      return;
    }
    const double down = static_cast<double>(size_now.height) / static_cast<double>(full.height);
    const double across = static_cast<double>(size_now.width) / static_cast<double>(full.width);
    resample(frame,
             {static_cast<double>(part.y) * down, static_cast<double>(part.x) * across,
              static_cast<double>(part.height) * down, static_cast<double>(part.width) * across},
             height_of(size), width_of(size));
  }
};

}  // namespace

KindRow<Transform> random_resized_crop_row() {
  return {"random_resized_crop",
          "Crops a random area with random proportions and resizes it; keeps the label if parts "
          "show enough",
          make_kind_of<RandomResizedCrop>, "size"};
}

}  // namespace dltrain
