// Samples during training (the section `generation`): generates text with the weights in the run's
// arena (with training.ema: the averages). Does not change the run: losses and weights have the
// same bits with and without samples.
#pragma once

#include <memory>
#include <vector>

#include "generate/generator.h"
#include "run/session.h"
#include "run/trainer.h"

namespace dltrain {

// Throws ConfigError at the section for data without a tokenizer, prompts that cannot be encoded or
// are too long, and models that cannot generate text.
void check_samples(const Session& session);

// The device memory for samples in addition to the plan; 0 without samples.
size_t sample_bytes(const Session& session);

class Samples {
 public:
  // Allocates memory for the state of the texts. `session` must be started and outlives it.
  explicit Samples(Session& session);

  // `step`: the number of steps of the weights. Returns nothing if `stop` has ended it.
  std::optional<SampleRecord> draw(int64_t step, const StopCheck& stop);

 private:
  const GenerationConfig& config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TextRequest> requests_;
  GenerateOptions options_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace dltrain
