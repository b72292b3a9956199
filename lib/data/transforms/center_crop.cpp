// center_crop: crops the middle of an image. Smaller images are padded evenly.
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

struct CenterCrop final : TransformOf<CenterCrop> {
  std::vector<int64_t> size;
  double fill = 0;

  void describe(Fields& f) override {
    describe_size(f, size,
                  "[height, width], or one number for both. A smaller image is not enlarged: it "
                  "gets a border of `fill` (resize it first)");
    describe_fill(f, fill);
  }
  bool random() const override { return false; }
  ImageSize output(const ImageSize& in) const override {
    return {height_of(size), width_of(size), in.channels};
  }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers&) const {
    const int64_t height = height_of(size), width = width_of(size);
    const auto start = [](int64_t whole, int64_t part) {
      return whole >= part ? (whole - part) / 2 : -((part - whole) / 2);
    };
    crop_padded(frame, start(frame.size().height, height), start(frame.size().width, width), height,
                width, fill);
  }
};

}  // namespace

std::shared_ptr<const Transform> make_center_crop(std::vector<int64_t> size, double fill) {
  auto made = std::make_shared<CenterCrop>();
  made->size = std::move(size);
  made->fill = fill;
  return made;
}

KindRow<Transform> center_crop_row() {
  return {"center_crop", "Crops the middle", make_kind_of<CenterCrop>, "size"};
}

}  // namespace dltrain
