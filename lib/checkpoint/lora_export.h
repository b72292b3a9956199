// The adapters of model.lora for other programs: a folder of peft, or merged into the weights.
#pragma once

#include <vector>

#include "checkpoint/huggingface_writer.h"

namespace dltrain {

// `tensors`: those of the model's checkpoint, adapters included.
//
// Replaces every weight that has an adapter by the weight that gives the same products,
// W + s·B·A (dora: with rows of the learned length), and drops the adapters. Throws Error(usage)
// for a weight that another layer shares.
std::vector<OutputTensor> merged_tensors(const std::vector<OutputTensor>& tensors,
                                         const IdentifiedModel& model, const LoraConfig& lora);

// Returns those that learn: the adapters and model.lora.also_train; the rest is that of the base.
// peft gives a module that it saves no adapter, so there the adapter goes into the weight.
std::vector<OutputTensor> learned_tensors(std::vector<OutputTensor> tensors,
                                          const IdentifiedModel& model, const LoraConfig& lora);

// Returns peft's adapter_config.json. Throws Error(usage) for modules that learn in a way that peft
// does not load.
nlohmann::ordered_json adapter_config(const std::vector<OutputTensor>& tensors,
                                      const IdentifiedModel& model, const ModelConfig& config);

}  // namespace dltrain
