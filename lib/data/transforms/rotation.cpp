// rotation: rotates by a random angle about the centre with bilinear interpolation.
#include <numbers>

#include "data/transforms/transforms.h"
#include "data/warp.h"

namespace dltrain {
namespace {

struct Rotation final : TransformOf<Rotation> {
  double degrees = 0;
  double fill = 0;

  void describe(Fields& f) override {
    f.number("degrees", degrees,
             {.doc = "Largest angle, either way",
              .required = true,
              .min = 0,
              .max = 180,
              .known_as = {"rotate", "angle"}});
    describe_fill(f, fill);
  }
  bool random() const override { return true; }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers& rng) const {
    const double angle = rng.between(-degrees, degrees) * std::numbers::pi / 180;
    const double c = std::cos(angle), s = std::sin(angle);
    const ImageView<T> in = frame.image();
    T* out = frame.start(in.size);
    warp(in, {c, -s, 0, s, c, 0}, static_cast<float>(to_pixel<T>(fill)), out);
    frame.finish();
  }
};

}  // namespace

KindRow<Transform> rotation_row() {
  return {"rotation", "Rotates by a random angle; keeps labels that do not depend on direction",
          make_kind_of<Rotation>, "degrees"};
}

}  // namespace dltrain
