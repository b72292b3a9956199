// Names spikes of the training loss and plateaus in the log. All logged steps are considered.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

namespace dltrain {

class LossWatch {
 public:
  // Adds a logged step. Returns a sentence or an empty text:
  // - a spike: the loss is far above those of the 30 logged steps before, by their spread, above
  //   1.5 times their median, and above a thousandth of the first loss. After each one named, the
  //   next 30, 60, 120, … logged steps are not considered, so that a run names few;
  // - a plateau, once: over half of the steps so far, and 100 logged ones at least, the mean loss
  //   has not fallen by 1 %.
  std::string add(int64_t step, double loss, double grad_norm);

 private:
  std::string spike(int64_t step, double loss, double grad_norm) const;
  std::string plateau(int64_t step);

  static constexpr size_t kBefore = 30;
  std::deque<double> recent_;   // the last kBefore
  std::deque<double> buckets_;  // means of equal numbers of logged steps, at most 2 · kBuckets
  double sum_ = 0, first_ = 0;  // of the loss
  int64_t in_bucket_ = 0, bucket_ = 5, logged_ = 0;  // bucket_: logged steps of a bucket
  int64_t quiet_ = kBefore, quiet_until_ = 0;        // after a spike
  bool told_plateau_ = false;
};

}  // namespace dltrain
