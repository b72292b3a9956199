// Samples of stored images: decoded, transformed, and converted to f32. Pixels are 8-bit until they
// are written to the batch.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/image_source.h"
#include "data/pipeline.h"
#include "data/random_affine.h"
#include "data/scaling.h"

namespace dltrain {

// The changes of the samples of a dataset.
struct SampleTransforms {
  TransformList transforms = {};
  RandomAffineOptions random_affine = {};  // in training, after the rest

  bool any() const { return !transforms.empty() || random_affine.active(); }
};

// The minimum size of samples whose changes should be shared between threads.
inline constexpr int64_t kManyElements = 16384;

// The input is [height, width, channels] in f32, the target one label. `scaling` applies to pixels
// of 0 to 255. Throws Error(usage) if transforms or scaling do not fit the images.
std::shared_ptr<const Dataset> make_image_dataset(std::shared_ptr<const ImageSource> source,
                                                  const SampleTransforms& changes,
                                                  const Scaling& scaling);

// The same changes for a dataset of numbers: each f32 input must be an image, [height, width] or
// [height, width, channels]. Returns `whole` if there are no changes.
std::shared_ptr<const Dataset> transform_samples(std::shared_ptr<const Dataset> whole,
                                                 const SampleTransforms& changes);

}  // namespace dltrain
