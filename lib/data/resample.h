// Resizing with a triangle filter that widens when the image shrinks (bilinear with antialiasing:
// what Pillow's and torchvision's `bilinear` do). In f32, so that results are the same on every
// machine.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace dltrain {

// A part of an image, in pixels; the edges may lie between them.
struct Box {
  double y = 0, x = 0, height = 0, width = 0;
};

// Makes the `box` of the frame's image an image of `height` by `width`. The box must overlap the
// image; pixels beside the box, but inside the image, count where the filter reaches them.
template <typename T>
void resample(Frame<T>& frame, const Box& box, int64_t height, int64_t width);

// The whole image.
template <typename T>
void resample(Frame<T>& frame, int64_t height, int64_t width) {
  const ImageSize& size = frame.size();
  if (size.height == height && size.width == width && !frame.reduced()) return;
  resample(frame, {0, 0, static_cast<double>(size.height), static_cast<double>(size.width)}, height,
           width);
}

}  // namespace dltrain
