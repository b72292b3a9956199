// horizontal_flip, vertical_flip: mirror images. They keep the label of most photographs, not of
// digits, letters or signs.
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

struct HorizontalFlip final : TransformOf<HorizontalFlip> {
  double probability = 0.5;

  void describe(Fields& f) override { describe_probability(f, probability); }
  bool random() const override { return true; }

  template <typename T>
  void run(Frame<T>& frame, Draws& draws) const {
    if (draws.uniform() >= probability) return;
    const ImageView<T> in = frame.image();
    T* out = frame.start(in.size);
    switch (in.size.channels) {
      case 1:
        mirror<1>(in, 1, out);
        break;
      case 3:
        mirror<3>(in, 3, out);
        break;
      default:
        mirror<0>(in, in.size.channels, out);
    }
    frame.finish();
  }

  // kChannels 0: `channels` of them.
  template <int kChannels, typename T>
  static void mirror(const ImageView<T>& in, int64_t channels, T* out) {
    const int64_t n = kChannels > 0 ? kChannels : channels, width = in.size.width;
    for (int64_t y = 0; y < in.size.height; ++y) {
      const T* from = in.at(y, width - 1);
      for (int64_t x = 0; x < width; ++x, out += n, from -= n) {
        for (int64_t c = 0; c < n; ++c) out[c] = from[c];
      }
    }
  }
};

struct VerticalFlip final : TransformOf<VerticalFlip> {
  double probability = 0.5;

  void describe(Fields& f) override { describe_probability(f, probability); }
  bool random() const override { return true; }

  template <typename T>
  void run(Frame<T>& frame, Draws& draws) const {
    if (draws.uniform() >= probability) return;
    const ImageView<T> in = frame.image();
    T* out = frame.start(in.size);
    const int64_t row = in.size.width * in.size.channels;
    for (int64_t y = 0; y < in.size.height; ++y) {
      std::copy_n(in.at(in.size.height - 1 - y, 0), row, out + y * row);
    }
    frame.finish();
  }
};

}  // namespace

KindRow<Transform> horizontal_flip_row() {
  return {"horizontal_flip", "Left and right change places; keeps labels without handedness",
          make_kind_of<HorizontalFlip>, "probability"};
}
KindRow<Transform> vertical_flip_row() {
  return {"vertical_flip", "Top and bottom change places; keeps labels of views from above",
          make_kind_of<VerticalFlip>, "probability"};
}

}  // namespace dltrain
