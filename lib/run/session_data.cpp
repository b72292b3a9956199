#include "run/session_data.h"

#include <algorithm>

#include "base/log.h"
#include "data/classes.h"
#include "data/token_windows.h"

namespace dltrain {
namespace {

// Describes labels that are all of one class; otherwise returns "".
std::string one_class_of(const DataSplit& data) {
  if (!has_one_label(*data.train) || outputs_for(data) != 1) return {};
  std::string owner = "the data";
  if (const auto schema = data.train->schema()) {
    for (const ColumnSchema& column : schema->columns) {
      if (column.kind != ColumnSchema::Kind::target || column.name.empty()) continue;
      owner = fmt::format("the target column '{}'", column.name);
    }
  }
  const auto& names = data.train->class_names();
  return fmt::format("{} has one class only ('{}')", owner, names.empty() ? "0" : names[0]);
}

// Orders the samples of both splits by streams if the data is configured so.
void cut_streams(const DatasetConfig& config, DataSplit& data, int64_t streams) {
  if (config.sampling != Sampling::streams) return;
  data.train = parallel_streams(data.train, streams, "data.train");
  if (data.eval) data.eval = parallel_streams(data.eval, streams, "data.eval");
}

// Changes the targets of both splits to those of the loss, and returns their properties.
TargetInfo prepare_targets(const Loss& loss, DataSplit& data) {
  // Labels of two classes become numbers 0 and 1.
  for (auto* split : {&data.train, &data.eval}) {
    const bool answers = *split && loss.target_kind({}) == TargetKind::binary;
    if (answers && target_sample(**split).dtype == DType::i32) *split = labels_as_targets(*split);
  }
  TargetInfo info{.sample = target_sample(*data.train), .label_counts = {}};
  if (info.sample->dtype != DType::i32) return info;
  if (const auto ignored = loss.ignored_label()) {
    for (auto* split : {&data.train, &data.eval}) {
      if (*split) *split = ignore_label(*split, *ignored);
    }
  }
  if (loss.wants_label_counts()) info.label_counts = count_labels(*data.train);
  return info;
}

}  // namespace

void open_data(Session& session) {
  SessionOptions& options = session.options;
  const DataConfig& config = session.experiment->data;
  if (!options.data) {
    const LogPause pause(!options.ranks.is_leader());  // all ranks read the same files
    options.data = config.open({.trained = options.trained, .targets = options.targets});
  }
  session.data = *options.data;
  cut_streams(*config.train, session.data, session.batch.global_batch);
  if (options.evaluate_train_split) session.data.eval = session.data.train;
  if (!options.evaluation) session.data.eval = nullptr;
}

TensorSpec target_sample(const Dataset& dataset) {
  return dataset.fields()[static_cast<size_t>(dataset.target_field())].sample;
}

std::vector<InputSpec> model_inputs(const std::vector<FieldSpec>& fields) {
  std::vector<InputSpec> inputs;
  for (size_t i = 0; i + 1 < fields.size(); ++i)
    inputs.push_back({fields[i].name, fields[i].sample});
  return inputs;
}

StreamInfo stream_info(const DatasetConfig& config, const Dataset& dataset, int64_t streams) {
  if (config.sampling != Sampling::streams) return {};
  return {.rows = streams, .steps = dataset.size() / streams};
}

TargetInfo step_targets(Session& session) {
  TargetInfo targets = prepare_targets(*session.experiment->loss, session.data);
  if (!session.data.train->has_targets()) targets.sample.reset();  // the loss chooses
  targets.one_class = one_class_of(session.data);
  const bool noise = session.options.noise;  // the checks need no mixing and no losses by source
  targets.mixed = noise && session.experiment->data.train->mixing().active();
  const SourceMix* mix = session.data.train->sources();
  if (noise && mix != nullptr && mix->sources().size() > 1) {
    targets.sources = static_cast<int64_t>(mix->sources().size());
  }
  return targets;
}

int64_t vocabulary_of(const DataSplit& data) {
  int64_t size = 0;
  for (const auto& split : {data.train, data.eval}) {
    if (!split) continue;
    const auto& fields = split->fields();
    const auto ids = std::find_if(fields.begin(), fields.end() - 1, [](const FieldSpec& field) {
      return field.sample.dtype == DType::i32;
    });
    // Ids beside numbers are categories; labels are not among these.
    if (ids != fields.end() - 1) {
      size = std::max(size, split->find_id_bound(static_cast<int>(ids - fields.begin())));
    }
    if (fields[0].sample.dtype != DType::i32) continue;
    if (target_sample(*split).dtype == DType::i32) size = std::max(size, split->label_bound());
  }
  return size;
}

int64_t outputs_for(const DataSplit& data) {
  const TensorSpec target = target_sample(*data.train);
  if (target.dtype != DType::i32) return target.shape.rank() == 0 ? 1 : target.shape[-1];
  int64_t classes = static_cast<int64_t>(data.train->class_names().size());
  for (const auto& split : {data.train, data.eval}) {
    if (split) classes = std::max(classes, split->label_bound());
  }
  return classes;
}

void read_by_schema(Session& session, const DataSchema& saved) {
  session.options.trained = std::make_shared<const DataSchema>(saved);
  session.options.data.reset();
  open_data(session);
  prepare_targets(*session.experiment->loss, session.data);
}

DataSchema Session::data_schema() const {
  const auto schema = data.train->schema();
  DataSchema out = schema ? *schema : DataSchema{};
  out.class_names = data.train->class_names();
  return out;
}

}  // namespace dltrain
