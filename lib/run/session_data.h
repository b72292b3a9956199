// The functions with which open_session() opens the data, describes its inputs and targets to the
// compiler, and checks it against the graph.
#pragma once

#include "compile/step_graph.h"
#include "run/session.h"

namespace dltrain {

// Sets the splits that a session reads. SessionOptions::data gets them as they were opened.
void open_data(Session& session);

// The element of the target field.
TensorSpec target_sample(const Dataset& dataset);
// All fields but the target.
std::vector<InputSpec> model_inputs(const std::vector<FieldSpec>& fields);
StreamInfo stream_info(const DatasetConfig& config, const Dataset& dataset, int64_t streams);

// Returns the properties of the targets for the training step of a session. Replaces labels that
// the loss ignores by −100 in both splits.
TargetInfo step_targets(Session& session);

// Returns the number of different ids of the first input and the labels of both splits; 0 without.
int64_t vocabulary_of(const DataSplit& data);
// Returns the number of outputs for these targets: logits of classes, or numbers.
int64_t outputs_for(const DataSplit& data);

// Throws ConfigError if a split has no targets.
void check_targets(const DataSplit& data);
// Throws Error(data) for labels, targets and ids that loss and model cannot take, and for splits of
// different shapes.
void check_data(const Session& session, const StepGraph& graph);
// Throws ConfigError for a model that can see the tokens that it has to predict.
void check_next_tokens(const Session& session, const DatasetConfig& data, const StepGraph& graph);

// Returns the schema of the data that a checkpoint was trained with.
DataSchema saved_schema(const std::filesystem::path& checkpoint);

}  // namespace dltrain
