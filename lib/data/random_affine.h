// Random changes of training images: each is rotated, stretched and shifted a little, so that a
// network learns what a class looks like and not where its pixels are. Bilinear; what comes from
// outside the image is 0.
//
// The change of an image is a pure function of (seed, its position in the order of training): the
// same on any number of ranks and threads, and after a resume.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/shape.h"

namespace dltrain {

struct RandomAffineOptions {
  double rotate = 0;     // degrees, at most, either way
  double scale = 0;      // at most this share larger or smaller, height and width each for itself
  double translate = 0;  // pixels, at most, either way, down and across each for itself

  bool active() const { return rotate != 0 || scale != 0 || translate != 0; }
};

class RandomAffine {
 public:
  // `image`: [height, width] or [height, width, channels]. Throws Error(usage) for other shapes.
  RandomAffine(const RandomAffineOptions& options, const Shape& image);

  // Changes an image in place. `position` counts samples from the start of training; `memory` is
  // the caller's, and grows once to the size of the image.
  void apply(uint64_t seed, int64_t position, float* image, std::vector<float>& memory) const;

 private:
  RandomAffineOptions options_;
  int64_t height_, width_, channels_;
};

}  // namespace dltrain
