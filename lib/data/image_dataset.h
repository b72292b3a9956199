// Samples made of stored images: decoded, transformed, and at last turned into f32. Pixels stay
// 8-bit until they are written to the batch.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/image_source.h"
#include "data/pipeline.h"
#include "data/random_affine.h"
#include "data/scaling.h"

namespace dltrain {

// What happens to the samples of a dataset.
struct SampleChanges {
  TransformList transforms = {};
  RandomAffineOptions random_affine = {};  // in training, after the rest

  bool any() const { return !transforms.empty() || random_affine.active(); }
};

// Changing a sample of fewer elements takes no time worth sharing between threads.
inline constexpr int64_t kManyElements = 16384;

// Input [height, width, channels] in f32, target one label. `scaling` is applied to pixels of 0 to
// 255. Throws Error(usage) where transforms or scaling do not fit the images.
std::shared_ptr<const Dataset> make_image_dataset(std::shared_ptr<const ImageSource> source,
                                                  const SampleChanges& changes,
                                                  const Scaling& scaling);

// The same changes for a dataset whose inputs are numbers: each f32 input must be an image,
// [height, width] or [height, width, channels]. Returns `whole` itself where there are no changes.
std::shared_ptr<const Dataset> change_samples(std::shared_ptr<const Dataset> whole,
                                              const SampleChanges& changes);

}  // namespace dltrain
