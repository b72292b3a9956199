// A Transform changes an image before it is written to a batch: resizing, cropping, random changes.
// data/transforms/transforms.h lists the kinds; a configuration names them in order:
//
//   data: {train: {transforms: [{random_crop: {size: 32, padding: 4}}, horizontal_flip]}}
//
// Random transforms are for training. Their change is a pure function of the seed, the position of
// the sample in the order of training, and the index in the list: the same on any number of workers
// and ranks, for any micro-batch, and after a resume.
//
// Threads: transforms are immutable; frames and draws belong to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "config/fields.h"
#include "data/image.h"

namespace dltrain {

// The sequence of random numbers of one visit of a sample for one purpose.
class RandomNumbers {
 public:
  RandomNumbers(uint64_t seed, uint64_t stream, int64_t position)
      : seed_(seed), stream_(stream), position_(static_cast<uint64_t>(position)) {}

  // Returns a number in [0, 1).
  double uniform() {
    const uint64_t n = next_++;
    return random_uniform(seed_, stream_, n / kInARow, position_ * kInARow + n % kInARow);
  }
  // Returns a number in [low, high).
  double between(double low, double high) { return low + (high - low) * uniform(); }
  // Returns one of 0 … n-1.
  int64_t below(int64_t n) {
    return std::min(static_cast<int64_t>(uniform() * static_cast<double>(n)), n - 1);
  }

 private:
  static constexpr uint64_t kInARow = 64;

  uint64_t seed_, stream_, position_;
  uint64_t next_ = 0;
};

struct Transform : ConfigVariant {
  void describe(Fields&) override {}

  // Returns true if it draws random numbers and is therefore for training only.
  virtual bool random() const = 0;
  // Returns the size of the result; the size `in` may vary between samples. Throws Error(usage) for
  // unsupported images.
  virtual ImageSize output(const ImageSize& in) const { return in; }
  // For the first transform of a list: returns the smallest scale, at most 1, at which an image of
  // the stored size `full` can be decoded without loss for the result.
  virtual double needed_scale(const ImageSize& /*full*/, RandomNumbers) const { return 1; }
  // Returns true if pixels move, so that targets that are images would not fit any more.
  virtual bool moves_pixels() const { return true; }
  // Returns true if it supports f32 images.
  virtual bool takes_numbers() const { return true; }

  virtual void apply(WorkingImage<uint8_t>& frame, RandomNumbers& rng) const = 0;
  virtual void apply(WorkingImage<float>& frame, RandomNumbers& rng) const = 0;

  virtual std::shared_ptr<const Transform> clone() const = 0;
  // Appends the transforms that replace it for samples held out by eval_fraction.
  virtual void add_for_evaluation(std::vector<std::shared_ptr<const Transform>>& out) const {
    if (!random()) out.push_back(clone());
  }
};

// Derived kinds have `template <typename T> void run(WorkingImage<T>&, RandomNumbers&) const`.
template <typename Self>
struct TransformOf : Transform {
  void apply(WorkingImage<uint8_t>& frame, RandomNumbers& rng) const override {
    self().run(frame, rng);
  }
  void apply(WorkingImage<float>& frame, RandomNumbers& rng) const override {
    self().run(frame, rng);
  }
  std::shared_ptr<const Transform> clone() const override { return std::make_shared<Self>(self()); }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

const KindTable<Transform>& transform_table();

}  // namespace dltrain
