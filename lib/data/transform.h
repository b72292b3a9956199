// A Transform changes an image on its way into a batch: resizing, cropping, random changes. Kinds
// are listed in data/transforms/transforms.h, one file each; a configuration names them in order:
//
//   data: {train: {transforms: [{random_crop: {size: 32, padding: 4}}, horizontal_flip]}}
//
// Random ones belong to training. Their change is a pure function of (seed, position of the sample
// in the order of training, place in the list): the same on any number of workers and ranks, for
// any micro-batch, and after a resume.
//
// Threads: transforms do not change; frames and draws belong to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "config/fields.h"
#include "data/image.h"

namespace dltrain {

// The random numbers of one sample's visit for one purpose, one after another.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream, int64_t position)
      : seed_(seed), stream_(stream), position_(static_cast<uint64_t>(position)) {}

  // In [0, 1).
  double uniform() {
    const uint64_t n = next_++;
    return random_uniform(seed_, stream_, n / kInARow, position_ * kInARow + n % kInARow);
  }
  // In [low, high).
  double between(double low, double high) { return low + (high - low) * uniform(); }
  // 0 … n-1.
  int64_t below(int64_t n) {
    return std::min(static_cast<int64_t>(uniform() * static_cast<double>(n)), n - 1);
  }

 private:
  static constexpr uint64_t kInARow = 64;

  uint64_t seed_, stream_, position_;
  uint64_t next_ = 0;
};

struct Transform : Chosen {
  void describe(Fields&) override {}

  // Whether it draws random numbers, and so is for training only.
  virtual bool random() const = 0;
  // The size of its result; `in` may be one that differs between samples. Throws Error(usage) for
  // images that it cannot work on.
  virtual ImageSize output(const ImageSize& in) const { return in; }
  // As the first of a list, for an image stored with the size `full`: the smallest scale, at most
  // 1, at which the image may be decoded without loss for the result.
  virtual double needed_scale(const ImageSize& /*full*/, Draws) const { return 1; }
  // Whether pixels change their places, so that a target that is an image would no longer fit.
  virtual bool moves_pixels() const { return true; }
  // Whether it works on f32 images too.
  virtual bool takes_numbers() const { return true; }

  virtual void apply(Frame<uint8_t>& frame, Draws& draws) const = 0;
  virtual void apply(Frame<float>& frame, Draws& draws) const = 0;

  virtual std::shared_ptr<const Transform> clone() const = 0;
  // What the samples held out by eval_fraction get instead, appended to `out`.
  virtual void add_for_evaluation(std::vector<std::shared_ptr<const Transform>>& out) const {
    if (!random()) out.push_back(clone());
  }
};

// Derived kinds have `template <typename T> void run(Frame<T>&, Draws&) const`.
template <typename Self>
struct TransformOf : Transform {
  void apply(Frame<uint8_t>& frame, Draws& draws) const override { self().run(frame, draws); }
  void apply(Frame<float>& frame, Draws& draws) const override { self().run(frame, draws); }
  std::shared_ptr<const Transform> clone() const override { return std::make_shared<Self>(self()); }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

const KindTable<Transform>& transform_table();

}  // namespace dltrain
