// random_crop: pads all sides of an image and crops it at a random place.
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

struct RandomCrop final : TransformOf<RandomCrop> {
  std::vector<int64_t> size;
  int64_t padding = 0;
  double fill = 0;

  void describe(Fields& f) override {
    describe_size(f, size,
                  "[height, width], or one number for both. An image that is smaller, with its "
                  "padding, is not enlarged: it gets a border of `fill` (resize it first)");
    f.integer("padding", padding,
              {.doc = "Pixels added on each side first", .min = 0, .max = 65536});
    describe_fill(f, fill);
  }
  bool random() const override { return true; }
  ImageSize output(const ImageSize& in) const override {
    return {height_of(size), width_of(size), in.channels};
  }
  void add_for_evaluation(std::vector<std::shared_ptr<const Transform>>& out) const override {
    out.push_back(make_center_crop(size, fill));
  }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers& rng) const {
    // An image that is smaller than the crop even with padding is placed inside it at random.
    const auto start = [&](int64_t whole, int64_t part) {
      const int64_t low = -padding, high = whole + padding - part;
      return std::min(low, high) + rng.below(std::abs(high - low) + 1);
    };
    const int64_t y = start(frame.size().height, height_of(size));
    const int64_t x = start(frame.size().width, width_of(size));
    crop_padded(frame, y, x, height_of(size), width_of(size), fill);
  }
};

}  // namespace

KindRow<Transform> random_crop_row() {
  return {"random_crop", "Crops at a random place; keeps the label if parts show enough",
          make_kind_of<RandomCrop>, "size"};
}

}  // namespace dltrain
