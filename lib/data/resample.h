// Resizing with a triangle filter that widens when the image shrinks (bilinear with antialiasing:
// as `bilinear` of Pillow and torchvision). Sums are f32, so that results are the same on every
// machine.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace dltrain {

// A part of an image, in pixels; the edges may lie between them.
struct Box {
  double y = 0, x = 0, height = 0, width = 0;
};

// Resizes `box` of the frame's image to `height` by `width`. The box must overlap the image; the
// filter also reads pixels of the image next to the box.
template <typename T>
void resample(WorkingImage<T>& frame, const Box& box, int64_t height, int64_t width);

// The whole image.
template <typename T>
void resample(WorkingImage<T>& frame, int64_t height, int64_t width) {
  const ImageSize& size = frame.size();
  if (size.height == height && size.width == width && !frame.reduced()) return;
  resample(frame, {0, 0, static_cast<double>(size.height), static_cast<double>(size.width)}, height,
           width);
}

}  // namespace dltrain
