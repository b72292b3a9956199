// The rules between sections of an experiment.
#include <utility>

#include "experiment/experiment.h"
#include "ops/op.h"

namespace dltrain {

// Refuses keys that need tensors which no rank stores in full.
void Experiment::validate_shards(Diagnostics& diagnostics) const {
  const bool zero = parallelism.zero_stage > 0, tensor = parallelism.tensor > 1;
  const bool context = parallelism.context > 1, experts = parallelism.expert > 1;
  const bool stages = parallelism.pipeline > 1;
  const std::string key = zero ? fmt::format("parallelism.zero_stage {}", parallelism.zero_stage)
                          : tensor  ? fmt::format("parallelism.tensor {}", parallelism.tensor)
                          : experts ? fmt::format("parallelism.expert {}", parallelism.expert)
                          : stages  ? fmt::format("parallelism.pipeline {}", parallelism.pipeline)
                                    : fmt::format("parallelism.context {}", parallelism.context);
  const auto refuse = [&](const SourceLocation& at, const std::string& why) {
    diagnostics.add(at, "{}: {}", key, why);
  };
  if (training.reduction == Reduction::fixed && (zero || tensor || context || experts)) {
    std::vector<std::string> remedies;
    for (const auto& [given, remedy] : {std::pair(zero, "zero_stage: 0"),
                                        {tensor, "tensor: 1"},
                                        {context, "context: 1"},
                                        {experts, "expert: 1"}}) {
      if (given) remedies.emplace_back(remedy);
    }
    refuse(training.location_of("reduction"),
           fmt::format("{} not added in the order of reduction: fixed, which works over data and "
                       "pipeline ranks; take {}, or reduction: fast",
                       zero      ? "sharded gradients are"
                       : tensor  ? "the products of shards are"
                       : context ? "sums over tokens are"
                                 : "the gradients of experts are",
                       fmt::join(remedies, " and ")));
  }
  if (parallelism.pipeline > 1 && loss && !loss->teachers().empty()) {
    diagnostics.add(location_of("loss"),
                    "parallelism.pipeline {}: a teacher is not divided into stages; take pipeline: "
                    "1",
                    parallelism.pipeline);
  }
  if (experts && loss && !loss->teachers().empty()) {
    diagnostics.add(location_of("loss"),
                    "parallelism.expert {}: a teacher is not divided over ranks; take expert: 1",
                    parallelism.expert);
  }
  if (training.verify_replicas && (zero || experts)) {
    refuse(training.location_of("verify_replicas"),
           zero ? "ranks with shards of their own cannot be compared; take zero_stage: 0"
                : "ranks with experts of their own cannot be compared; take expert: 1");
  }
  // Every context rank has all weights and, after the sums over ranks, all gradients.
  const bool divided = zero || tensor || experts || stages;
  if (generation && divided) {
    refuse(generation->location,
           "samples need the full weights on one rank; use `dltrain generate` on a checkpoint");
  }
  if (evaluation.predictions) {
    refuse(evaluation.location_of("predictions"),
           fmt::format("predictions need the full {} on one rank; use `dltrain predict` on a "
                       "checkpoint",
                       divided ? "weights" : "samples"));
  }
  if (logging.histogram_steps && divided) {
    refuse(logging.location_of("histogram_steps"),
           "histograms need the full weights and gradients on one rank");
  }
  if (logging.gradient_noise) {
    refuse(logging.location_of("gradient_noise"),
           divided ? "gradient_noise needs full gradients on a rank"
                   : "gradient_noise needs gradients of full samples on a rank");
  }
}

void Experiment::validate_narrow_parameters(Diagnostics& diagnostics) const {
  const std::string why = "precision.parameters: bf16: ";
  if (optimizer && !find_op(optimizer->op())->independent_elements) {
    diagnostics.add(*this, "optimizer",
                    "{}{} needs full tensors and f32 parameters; take an element-wise optimizer "
                    "(adamw, adam, sgd, adagrad, rmsprop, lion)",
                    why, optimizer->kind);
  }
  if (parallelism.zero_stage > 0) {
    diagnostics.add(parallelism, "zero_stage",
                    why + "ZeRO shards f32 master weights, which do not exist; take zero_stage: 0");
  }
  if (parallelism.tensor > 1) {
    diagnostics.add(parallelism, "tensor", why + "only f32 weights are sharded; take tensor: 1");
  }
  if (parallelism.expert > 1) {
    diagnostics.add(parallelism, "expert", why + "only f32 weights are sharded; take expert: 1");
  }
  if (training.ema) {
    diagnostics.add(training.ema->location,
                    why + "averages need f32 parameters; leave training.ema out");
  }
}

void Experiment::validate_8bit_moments(Diagnostics& diagnostics) const {
  if (!optimizer->supports_8bit()) {
    diagnostics.add(*optimizer, "moments",
                    "moments: 8bit are for adam, adamw, lion and sgd with a momentum, not for {}; "
                    "take moments: f32",
                    optimizer->kind == "sgd" ? "sgd without" : optimizer->kind);
  }
  for (const auto& [axis, ranks] :
       {std::pair("tensor", parallelism.tensor), {"expert", parallelism.expert}}) {
    if (ranks == 1) continue;
    diagnostics.add(*optimizer, "moments",
                    "parallelism.{} {}: shards would have other blocks of moments, and so other "
                    "losses, than full tensors; take moments: f32 or {}: 1",
                    axis, ranks, axis);
  }
}

void Experiment::validate_galore(Diagnostics& diagnostics) const {
  const auto refuse = [&](const std::string& why) {
    diagnostics.add(*optimizer, "galore", "galore {}", why);
  };
  if (parallelism.zero_stage == 3) {
    refuse("projects whole gradients, and zero_stage: 3 shards the parameters; take zero_stage: 2");
  }
  if (parallelism.tensor > 1) {
    refuse("projects whole gradients, and parallelism.tensor divides them; take tensor: 1");
  }
  if (training.optimizer_in_backward) {
    refuse("does not go with training.optimizer_in_backward; leave one of them out");
  }
  if (training.max_grad_value) {
    refuse("clips projected gradients only by their norm; take training.max_grad_norm");
  }
  if (precision.narrow_parameters()) {
    refuse("needs f32 parameters; leave precision.parameters out");
  }
}

void Experiment::validate_forward_gradient(Diagnostics& diagnostics) const {
  const auto refuse = [&](const std::string& why) {
    diagnostics.add(training, "gradient", "gradient: forward {}", why);
  };
  for (const auto& [axis, ranks] : {std::pair("tensor", parallelism.tensor),
                                    {"pipeline", parallelism.pipeline},
                                    {"context", parallelism.context},
                                    {"expert", parallelism.expert}}) {
    if (ranks > 1) {
      refuse(fmt::format("goes with data parallelism and ZeRO only; take parallelism.{}: 1", axis));
    }
  }
  if (memory.recompute != Recompute::none) {
    refuse("keeps no activations that memory.recompute could compute again; leave it out");
  }
  if (precision.fp8) refuse("does not go with precision.fp8");
  if (model.pad_vocab_to) refuse("does not go with model.pad_vocab_to");
}

void Experiment::validate_lora(Diagnostics& diagnostics) const {
  const LoraConfig& lora = *model.lora;
  const auto refuse = [&](const char* key, const std::string& why) {
    diagnostics.add(lora, key, why);
  };
  const bool cut = parallelism.tensor > 1 || parallelism.expert > 1;
  if (lora.base == LoraBase::bf16) {
    if (precision.compute != DType::bf16)
      refuse("base", "base: bf16 needs precision.compute: bf16");
    if (parallelism.zero_stage > 0) {
      refuse("base",
             "base: bf16 does not go with ZeRO, which shards f32 values; take zero_stage: 0");
    }
    if (cut) {
      refuse("base",
             "base: bf16 does not go with tensor or expert parallelism, which shards f32 values");
    }
  }
  if (lora.saves_base()) return;
  const bool coded = lora.codes().format != WeightFormat::wide;
  const char* key = coded ? "base" : "save";
  const std::string what = coded ? "base: int8 and nf4" : "save: adapters";
  if (parallelism.zero_stage > 2) {
    refuse(key, what + " keep the whole base on each rank, which zero_stage: 3 shards; take 2");
  }
  if (cut) {
    refuse(key, what + " do not go with tensor or expert parallelism, which shards the base");
  }
  if (model.final_bias_from_data) {
    refuse(key,
           what + " leave a base that model.final_bias_from_data has changed out of checkpoints");
  }
  if (lora.variant == LoraVariant::dora && parallelism.pipeline > 1) {
    refuse(key, what + " do not go with dora in a pipeline");
  }
}

}  // namespace dltrain
