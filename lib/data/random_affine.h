// Random changes of training images: small rotations, stretches and shifts. Bilinear; pixels from
// outside the image are 0.
//
// The change is a pure function of the seed and the position in the order of training: the same on
// any number of ranks and threads, and after a resume.
#pragma once

#include <cstdint>
#include <vector>

#include "data/image.h"

namespace dltrain {

struct RandomAffineOptions {
  double rotate = 0;     // maximum angle in degrees, in both directions
  double scale = 0;      // maximum share by which height and width independently grow or shrink
  double translate = 0;  // maximum vertical and horizontal shift in pixels

  bool active() const { return rotate != 0 || scale != 0 || translate != 0; }
};

class RandomAffine {
 public:
  RandomAffine(const RandomAffineOptions& options, const ImageSize& size)
      : options_(options), size_(size) {}

  // Changes an image in place. `position` counts samples from the start of training; `memory` is
  // scratch memory that grows to the size of the image.
  void apply(uint64_t seed, int64_t position, float* image, std::vector<float>& memory) const;

 private:
  RandomAffineOptions options_;
  ImageSize size_;
};

}  // namespace dltrain
