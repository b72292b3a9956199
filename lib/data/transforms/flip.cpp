// horizontal_flip, vertical_flip: mirror images. Labels of most photographs do not change, those of
// digits, letters or signs may.
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

// kChannels 0: any number.
template <int kChannels, typename T>
void mirror(const ImageView<T>& in, T* out) {
  const int64_t n = kChannels > 0 ? kChannels : in.size.channels, width = in.size.width;
  for (int64_t y = 0; y < in.size.height; ++y) {
    const T* from = in.at(y, width - 1);
    for (int64_t x = 0; x < width; ++x, out += n, from -= n) {
      for (int64_t c = 0; c < n; ++c) out[c] = from[c];
    }
  }
}

template <bool kHorizontal>
struct Flip final : TransformOf<Flip<kHorizontal>> {
  double probability = 0.5;

  void describe(Fields& f) override { describe_probability(f, probability); }
  bool random() const override { return true; }

  template <typename T>
  void run(WorkingImage<T>& frame, RandomNumbers& rng) const {
    if (rng.uniform() >= probability) return;
    const ImageView<T> in = frame.image();
    T* out = frame.start(in.size);
    const int64_t row = in.size.width * in.size.channels;
    if (kHorizontal) {
      in.size.channels == 3   ? mirror<3>(in, out)
      : in.size.channels == 1 ? mirror<1>(in, out)
                              : mirror<0>(in, out);
    } else {
      for (int64_t y = 0; y < in.size.height; ++y) {
        std::copy_n(in.at(in.size.height - 1 - y, 0), row, out + y * row);
      }
    }
    frame.finish();
  }
};

}  // namespace

KindRow<Transform> horizontal_flip_row() {
  return {"horizontal_flip", "Swaps left and right; for labels without handedness",
          make_kind_of<Flip<true>>, "probability"};
}
KindRow<Transform> vertical_flip_row() {
  return {"vertical_flip", "Swaps top and bottom; for views from above", make_kind_of<Flip<false>>,
          "probability"};
}

}  // namespace dltrain
