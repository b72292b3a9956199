// The frozen base of a model whose checkpoints hold adapters alone (LoraConfig::saves_base): it is
// loaded from model.init_from, or initialised, wherever a checkpoint is used.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint_state.h"
#include "nn/model.h"
#include "runtime/state_store.h"

namespace dltrain {

// Returns whether checkpoints of this model lack its base.
bool has_base_elsewhere(const ModelConfig& model);

// Returns a hash of the weights in a file or folder: of all bytes of its safetensors files, or for
// a verified checkpoint of their checksums.
std::string fingerprint_of_weights(const std::filesystem::path& path);

// Returns a hash of the names, sizes and first bytes of the tensors: quick, to compare copies.
std::string sample_of_weights(const std::filesystem::path& path);

// Throws Error(storage) unless the base has the fingerprint with which the checkpoint was trained;
// "": initial values. `now`: of model.init_from.
void check_base(const ModelConfig& model, const CheckpointState& saved, const std::string& now);

// Writes initial values, then those of model.init_from. Throws the errors of check_base() and
// load_weights().
void load_base(StateStore& store, ModelConfig& model, const CheckpointState& saved);

}  // namespace dltrain
