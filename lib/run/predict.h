// Predictions for each sample of a split, in file order: for files of predictions and for
// ensembles, which average predictions.
#pragma once

#include <optional>
#include <vector>

#include "run/trainer.h"

namespace dltrain {

// For `labels` and `distributions` a probability for each class, at each position of a sample (the
// tokens of a text); for `binary` one for each output; for `numbers` the outputs.
struct Predictions {
  TargetKind kind = TargetKind::numbers;
  int64_t samples = 0;
  int64_t width = 0;               // numbers a sample
  int64_t classes = 0;             // 0: the numbers are not classes
  std::vector<float> values = {};  // [samples, width]

  int64_t positions() const { return classes > 0 ? width / classes : 1; }
};

// Runs the model of `session` over session.data.eval, or its first `limit` samples, on this rank
// alone. Throws Error(memory) if there are too many predictions. Returns no samples if `stop` has
// ended it.
Predictions predict(const Session& session, std::optional<int64_t> limit = {},
                    const StopCheck& stop = {});

// A sample, or a position of one, and its loss.
struct Suspect {
  int64_t sample = 0, position = 0;
  double loss = 0;
};
// The samples whose targets the predictions contradict most, at most `most`, the worst first: -ln p
// of the target (of several targets the sum), for numbers half the squared error. Targets that do
// not count are left out. Wrongly labelled samples are often among the first (Northcutt et al.
// 2021). Throws Error(usage) if the data has no targets.
std::vector<Suspect> suspects(const Predictions& predictions, const Dataset& dataset, size_t most);

// The mean of several predictions of the same samples. Throws Error(usage) if they differ in
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

// Computes loss and metrics of predictions by the configuration of `session`, as evaluate() does
// for a model.
EvaluationRecord evaluate_predictions(const Session& session, const Predictions& predictions,
                                      int64_t step);

}  // namespace dltrain
