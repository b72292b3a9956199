// color_jitter: random brightness, contrast, saturation and hue, in a random order (the definitions
// are those of torchvision's ColorJitter on 8-bit images). For labels that do not need colours.
#include "base/error.h"
#include "data/transforms/transforms.h"

namespace dltrain {
namespace {

double gray_of(const uint8_t* pixel) {
  return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2];
}

// Multiplies the distances of all values from `centre`; for brightness that is 0.
void stretch_values(uint8_t* pixels, const ImageSize& size, double centre, double factor) {
  uint8_t table[256];
  for (int v = 0; v < 256; ++v) table[v] = to_pixel<uint8_t>(centre + (v - centre) * factor);
  for (int64_t i = 0; i < size.elements(); ++i) pixels[i] = table[pixels[i]];
}

void change_contrast(uint8_t* pixels, const ImageSize& size, double factor) {
  const int64_t n = size.height * size.width;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += size.channels == 3 ? gray_of(pixels + 3 * i) : static_cast<double>(pixels[i]);
  }
  stretch_values(pixels, size, sum / static_cast<double>(n), factor);
}

void change_saturation(uint8_t* pixels, const ImageSize& size, double factor) {
  if (size.channels != 3) return;
  const auto f = static_cast<float>(factor);
  for (uint8_t* p = pixels; p != pixels + size.elements(); p += 3) {
    const auto gray = static_cast<float>(gray_of(p));
    for (int c = 0; c < 3; ++c) {
      const float value = gray + (static_cast<float>(p[c]) - gray) * f;
      p[c] = static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
    }
  }
}

// Rotates the hue by `shift` of the circle (HSV).
void change_hue(uint8_t* pixels, const ImageSize& size, double shift) {
  if (size.channels != 3) return;
  for (uint8_t* p = pixels; p != pixels + size.elements(); p += 3) {
    const float r = p[0], g = p[1], b = p[2];
    const float high = std::max({r, g, b}), range = high - std::min({r, g, b});
    if (range == 0) continue;
    float sextant = high == r   ? (g - b) / range
                    : high == g ? 2 + (b - r) / range
                                : 4 + (r - g) / range;
    sextant += static_cast<float>(6 * shift);
    sextant -= 6 * std::floor(sextant / 6);
    // Returns channel c of the colour with this value, range and hue.
    const auto channel = [&](float offset) {
      float k = offset + sextant;
      k -= k >= 6 ? 6.0f : 0.0f;
      const float part = std::clamp(std::min(k, 4 - k), 0.0f, 1.0f);
      return static_cast<uint8_t>(std::clamp(high - range * part + 0.5f, 0.0f, 255.0f));
    };
    p[0] = channel(5);
    p[1] = channel(3);
    p[2] = channel(1);
  }
}

struct ColorJitter final : TransformOf<ColorJitter> {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;

  void describe(Fields& f) override {
    const auto factor = [&](const char* name, double& member) {
      f.number(name, member,
               {.doc = "The factor is drawn from 1 − this to 1 + this, at least 0",
                .min = 0,
                .max = 100});
    };
    factor("brightness", brightness);
    factor("contrast", contrast);
    factor("saturation", saturation);
    f.number("hue", hue,
             {.doc = "The hue turns by at most this share of the circle", .min = 0, .max = 0.5});
  }
  bool random() const override { return true; }
  bool moves_pixels() const override { return false; }
  bool takes_numbers() const override { return false; }
  ImageSize output(const ImageSize& in) const override {
    if (in.channels != 1 && in.channels != 3) {
      fail(ExitCode::usage, "color_jitter needs images of 1 or 3 channels, not {}", in.channels);
    }
    return in;
  }

  void run(WorkingImage<uint8_t>& frame, RandomNumbers& rng) const {
    // All numbers are drawn, so that one amount does not change the draws of the others.
    const auto factor = [&](double amount) {
      return rng.between(std::max(0.0, 1 - amount), 1 + amount);
    };
    const double factors[] = {factor(brightness), factor(contrast), factor(saturation),
                              rng.between(-hue, hue)};
    int order[] = {0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
    const ImageSize size = frame.size();
    uint8_t* pixels = frame.pixels();
    for (const int which : order) {
      if (which == 0 && brightness > 0) stretch_values(pixels, size, 0, factors[0]);
      if (which == 1 && contrast > 0) change_contrast(pixels, size, factors[1]);
      if (which == 2 && saturation > 0) change_saturation(pixels, size, factors[2]);
      if (which == 3 && hue > 0) change_hue(pixels, size, factors[3]);
    }
  }
  void run(WorkingImage<float>&, RandomNumbers&) const {
    fail(ExitCode::internal, "internal error: color_jitter of numbers");
  }
};

}  // namespace

KindRow<Transform> color_jitter_row() {
  return {
      "color_jitter",
      "Random brightness, contrast, saturation and hue of 8-bit images, in a random order; keeps "
      "labels that colours do not decide",
      make_kind_of<ColorJitter>};
}

}  // namespace dltrain
