// Models from text, as configuration files give them.
#pragma once

#include <string>

#include "config/bind.h"
#include "config/yaml.h"
#include "nn/model.h"

namespace dltrain {

// The errors in a `model` section; "" where it is right.
inline std::string read_model(const std::string& text, ModelConfig& model) {
  Diagnostics diagnostics;
  const auto source = std::make_shared<Source>(Source{"model.yaml", text});
  if (const auto tree = read_yaml(source, 0, diagnostics)) bind(model, *tree, diagnostics);
  return diagnostics.describe();
}

inline std::string mistakes_in(const std::string& text) {
  ModelConfig model;
  return read_model(text, model);
}

// The emitted model of a right text with cross-entropy; throws what emit_model throws.
inline EmittedModel emit_text(const std::string& text, const Shape& sample, int64_t samples = 2,
                              bool training = true, DType compute = DType::f32,
                              int64_t ghost_groups = 1) {
  ModelConfig model;
  const std::string errors = read_model(text, model);
  if (!errors.empty()) throw Error(ExitCode::usage, errors);
  const auto loss = make_kind(loss_table(), "cross_entropy");
  return emit_model({.model = model,
                     .loss = *loss,
                     .inputs = {{"x", {sample, DType::f32}}},
                     .samples = samples,
                     .training = training,
                     .compute = compute,
                     .ghost_groups = ghost_groups});
}

// Returns emit_model's error for an invalid text.
inline std::string refusal(const std::string& text, const Shape& sample) {
  try {
    emit_text(text, sample);
  } catch (const Error& error) {
    return error.code() == ExitCode::usage ? error.what() : "another code";
  }
  return "";
}

// "layers.0.weight f32[8, 1, 3, 3] of file f32…": one line a parameter or buffer.
inline std::string parameters_of(const EmittedModel& model) {
  std::string out;
  for (const ParameterInfo& p : model.parameters) {
    out += fmt::format("{} {}", p.name, to_string(p.spec));
    if (!(p.file.shape == p.spec.shape)) out += fmt::format(" file {}", to_string(p.file.shape));
    out += p.role == Role::buffer ? " buffer\n" : "\n";
  }
  return out;
}

}  // namespace dltrain
