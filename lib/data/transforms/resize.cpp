// resize: scales to a height and width, or the shorter side to a length.
#include "data/resample.h"
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

struct Resize final : TransformOf<Resize> {
  std::vector<int64_t> size;

  void describe(Fields& f) override {
    describe_size(
        f, size, "[height, width], or the length of the shorter side, which keeps the proportions");
  }
  bool random() const override { return false; }

  ImageSize output(const ImageSize& in) const override {
    if (size.size() == 2) return {size[0], size[1], in.channels};
    if (!in.fixed()) return {0, 0, in.channels};
    const int64_t shorter = std::min(in.height, in.width);
    const auto scaled = [&](int64_t length) {
      return std::max<int64_t>(1, length * size[0] / shorter);
    };
    return {scaled(in.height), scaled(in.width), in.channels};
  }

  double needed_scale(const ImageSize& full, RandomNumbers) const override {
    const ImageSize to = output(full);
    return std::max(static_cast<double>(to.height) / static_cast<double>(full.height),
                    static_cast<double>(to.width) / static_cast<double>(full.width));
  }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers&) const {
    const ImageSize to = output(frame.full());
    resample(frame, to.height, to.width);
  }
};

}  // namespace

std::shared_ptr<const Transform> make_resize(std::vector<int64_t> size) {
  auto made = std::make_shared<Resize>();
  made->size = std::move(size);
  return made;
}

KindRow<Transform> resize_row() {
  return {"resize", "Resizes: bilinear, with antialiasing where it shrinks", make_kind_of<Resize>,
          "size"};
}

}  // namespace dltrain
