// What models say about each sample of a split, in file order: for files of predictions, and for
// ensembles, whose members' predictions are averaged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace dltrain {

// Of `labels` and `distributions`: a probability for each class, at each place of a sample (the
// tokens of a text); of `binary`: one for each output; of `numbers`: the outputs themselves.
struct Predictions {
  TargetKind kind = TargetKind::numbers;
  int64_t samples = 0;
  int64_t width = 0;               // numbers a sample
  int64_t classes = 0;             // 0: the numbers are no classes
  std::vector<float> values = {};  // [samples, width]

  int64_t places() const { return classes > 0 ? width / classes : 1; }
};

// Runs the model that `session` holds over session.data.eval, or its first `limit` samples, on this
// rank alone. Throws Error(memory) where the predictions are too many to be held. Without samples
// where `stop` has ended it.
Predictions predict(const Session& session, std::optional<int64_t> limit = {},
                    const StopCheck& stop = {});

// The mean of several predictions of the same samples. Throws Error(usage) where they differ in
// samples or classes.
class MeanPredictions {
 public:
  void add(const Predictions& member);
  Predictions mean() const;

 private:
  Predictions first_;  // without values
  std::vector<double> sums_;
  int64_t members_ = 0;
};

// Loss and metrics of predictions, by the loss and the metrics of `session`'s configuration, as
// evaluate() measures them for a model.
EvaluationRecord evaluate_predictions(const Session& session, const Predictions& predictions,
                                      int64_t step);

}  // namespace dltrain
