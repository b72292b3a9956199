// A list of transforms made ready for the images of one dataset: for training as configured, for
// evaluation with what stands in for the random ones.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/transform.h"

namespace dltrain {

using TransformList = std::vector<std::shared_ptr<const Transform>>;

class Pipeline {
 public:
  // `in`: the size of the images, fixed or not. `numbers`: they are f32, not 8-bit. Throws
  // ConfigError at the transform that cannot work on what it gets.
  Pipeline(TransformList transforms, const ImageSize& in, bool numbers);

  // Of the result; its height and width are 0 where images differ in size to the end.
  const ImageSize& output() const { return output_; }

  // For an image stored with the size `full`: see Transform::needed_scale.
  double needed_scale(const ImageSize& full, const Visit& visit) const;
  template <typename T>
  void run(Frame<T>& frame, const Visit& visit) const {
    for (size_t i = 0; i < transforms_.size(); ++i) {
      Draws draws = draws_of(i, visit);
      transforms_[i]->apply(frame, draws);
    }
  }

 private:
  static Draws draws_of(size_t place, const Visit& visit);

  TransformList transforms_;
  ImageSize output_;
};

// The two ways to look at a dataset's images.
struct Pipelines {
  // Throws as Pipeline does, and Error(usage) where results differ in size between samples.
  Pipelines(const TransformList& transforms, const ImageSize& in, bool numbers);

  Pipeline training, evaluation;
};

}  // namespace dltrain
