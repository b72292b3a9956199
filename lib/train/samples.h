// Samples during training (the section `generation`): the model that a run trains continues texts,
// on the weights as they lie in the run's arena (with training.ema: on the averages). Reads the
// run, changes nothing of it: losses and weights have the same bits with and without samples.
#pragma once

#include <memory>
#include <vector>

#include "generate/generator.h"
#include "train/session.h"
#include "train/trainer.h"

namespace dltrain {

// Throws ConfigError at the section where it cannot be followed: data without a tokenizer, prompts
// that cannot be encoded or are too long, a model that cannot continue texts.
void check_samples(const Session& session);

// Device memory that samples take besides that of the plan; 0 without them.
size_t sample_bytes(const Session& session);

class Samples {
 public:
  // Takes memory for what is kept of the texts. `session`, which was started, outlives it.
  explicit Samples(Session& session);

  // `step`: how many steps the weights have seen.
  std::optional<SampleRecord> draw(int64_t step, const StopCheck& stop);

 private:
  const GenerationConfig& config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TextRequest> requests_;
  GenerateOptions options_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace dltrain
