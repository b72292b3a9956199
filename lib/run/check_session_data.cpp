#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "compile/id_bounds.h"
#include "compile/later_tokens.h"
#include "run/session_data.h"

namespace dltrain {

void check_targets(const DataSplit& data) {
  for (const auto& [split, name] :
       {std::pair(data.train, "data.train"), {data.eval, "data.eval"}}) {
    if (split && !split->has_targets()) {
      fail(ExitCode::usage, "{} has no targets; only predict takes such data", name);
    }
  }
}

void check_data(const Session& session, const StepGraph& graph) {
  const int64_t classes = session.classes;
  const TargetKind kind = session.experiment->loss->target_kind(session.target_info);
  for (const auto& split : {session.data.train, session.data.eval}) {
    if (!split) continue;
    if (classes > 0) split->check_labels(classes);
    if (kind == TargetKind::binary) split->check_targets(0, 1);
    // Targets of mixed samples are still labels here.
    if (kind == TargetKind::distributions && is_floating(target_sample(*split).dtype)) {
      split->check_distributions(graph.output_spec.shape[-1]);
    }
  }
  for (const IdBound& ids : id_bounds(graph.graph, graph.slots)) {
    for (const auto& split : {session.data.train, session.data.eval}) {
      if (split) split->check_ids(static_cast<int>(ids.slot), ids.bound);
    }
  }
  if (session.data.eval && session.data.eval->fields()[0].sample.shape.elements() !=
                               session.data.train->fields()[0].sample.shape.elements()) {
    fail(ExitCode::data, "train samples have shape {}, eval samples {}",
         to_string(session.data.train->fields()[0].sample.shape),
         to_string(session.data.eval->fields()[0].sample.shape));
  }
}

void check_next_tokens(const Session& session, const DatasetConfig& data, const StepGraph& graph) {
  const std::string name = data.next_token_input();
  const auto& fields = session.data.train->fields();
  for (size_t i = 0; i + 1 < fields.size(); ++i) {
    if (fields[i].name != name) continue;
    const std::string layer = layer_of_later_tokens(graph.graph, graph.slots[i]);
    if (layer.empty()) continue;
    fail_at(data.location,
            "the target of each token is the next token, and the model can see it: {} attends to "
            "later tokens; set mlm_probability: 0.15 to learn masked tokens instead (BERT), or "
            "make the layer causal",
            layer);
  }
}

DataSchema saved_schema(const std::filesystem::path& checkpoint) {
  Checksums unverified;  // the tensors are read elsewhere
  return read_checkpoint_state(checkpoint, &unverified).data;
}

std::string data_difference(const Session& session, const DataSchema& saved) {
  DataSchema now = session.data_schema();
  // Properties that only one of the two schemas has are not compared.
  DataSchema before = saved.recorded() || now.fitted() ? saved : now;
  before.class_names = saved.class_names;
  if (now.class_names.empty()) now.class_names = saved.class_names;
  if (before.class_names.empty()) before.class_names = now.class_names;
  return schema_difference(before, now);
}

void check_same_data(const Session& session, const DataSchema& saved,
                     const std::filesystem::path& checkpoint) {
  const DataSchema now = session.data_schema();
  if (!saved.recorded() && saved.class_names.empty() && !now.columns.empty() &&
      !now.class_names.empty()) {
    fail(ExitCode::usage,
         "{} was saved by an earlier version, which used the labels as class numbers; set "
         "data.classes to the largest label plus one",
         checkpoint.string());
  }
  const std::string difference = data_difference(session, saved);
  if (difference.empty()) return;
  fail(ExitCode::usage, "{} was trained with other data: {}", checkpoint.string(), difference);
}

void warn_of_other_data(const Session& session, const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  if (!session.options.ranks.is_leader() ||
      !std::filesystem::exists(checkpoint / "state.json", ignored)) {
    return;
  }
  const DataSchema saved = saved_schema(checkpoint);
  if (only_statistics_differ(saved, session.data_schema())) return;
  const std::string difference = data_difference(session, saved);
  if (difference.empty() || !saved.recorded()) return;
  log_warning("the weights of {} were trained with other data: {}", checkpoint.string(),
              difference);
}

}  // namespace dltrain
