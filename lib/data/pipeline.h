// The transforms for the images of one dataset: for training as configured, for evaluation with
// replacements of the random ones.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/transform.h"

namespace dltrain {

using TransformList = std::vector<std::shared_ptr<const Transform>>;

class Pipeline {
 public:
  // `in` is the size of the images, fixed or not. `numbers`: they are f32 instead of 8-bit. Throws
  // ConfigError at a transform that does not support its input.
  Pipeline(TransformList transforms, const ImageSize& in, bool numbers);

  // The size of the result; height and width are 0 if it varies.
  const ImageSize& output() const { return output_; }

  // See Transform::needed_scale; `full` is the stored size of the image.
  double needed_scale(const ImageSize& full, const SampleVisit& visit) const;
  template <typename T>
  void run(WorkingImage<T>& frame, const SampleVisit& visit) const {
    for (size_t i = 0; i < transforms_.size(); ++i) {
      RandomNumbers rng = random_numbers_of(i, visit);
      transforms_[i]->apply(frame, rng);
    }
  }

 private:
  static RandomNumbers random_numbers_of(size_t location, const SampleVisit& visit);

  TransformList transforms_;
  ImageSize output_;
};

// The pipelines of a dataset.
struct Pipelines {
  // Throws like Pipeline, and Error(usage) if the size of the result varies.
  Pipelines(const TransformList& transforms, const ImageSize& in, bool numbers);

  Pipeline training, evaluation;
};

}  // namespace dltrain
