#include "run/session.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/base_weights.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/weights.h"
#include "compile/described_gpu.h"
#include "compile/id_bounds.h"
#include "compile/later_tokens.h"
#include "config/load.h"
#include "config/paths.h"
#include "config/suggest.h"
#include "data/classes.h"
#include "data/token_windows.h"
#include "device/engine.h"
#include "nn/metrics.h"
#include "ops/kernel.h"
#include "run/memory_fit.h"
#include "run/samples.h"

namespace dltrain {
namespace {

TensorSpec target_sample(const Dataset& dataset) {
  return dataset.fields()[static_cast<size_t>(dataset.target_field())].sample;
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

void check_targets(const DataSplit& data) {
  for (const auto& [split, name] :
       {std::pair(data.train, "data.train"), {data.eval, "data.eval"}}) {
    if (split && !split->has_targets()) {
      fail(ExitCode::usage, "{} has no targets (`target: none`); only predict takes such data",
           name);
    }
  }
}

// Throws ConfigError for a model that can see the tokens that it has to predict.
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

// Throws ConfigError unless evaluations compute the metrics of early stopping and of the best
// checkpoint.
void check_metrics(const Experiment& experiment, const std::vector<std::string>& metrics,
                   const SourceMix* sources) {
  Diagnostics diagnostics;
  std::vector<std::string> labels = metric_labels(metrics);
  labels.insert(labels.begin(), "loss");
  const size_t of_all = labels.size();
  for (size_t k = 0; sources != nullptr && k < sources->sources().size(); ++k) {
    for (size_t i = 0; i < of_all; ++i) {
      labels.push_back(sources->sources()[k].name + "_" + labels[i]);
    }
  }
  const auto check = [&](const ConfigObject& owner, const std::string& metric) {
    if (contains(labels, metric)) return;
    diagnostics.add(owner, "metric",
                    "there is no metric '{}'; evaluations give {} (evaluation.metrics)", metric,
                    join_names(labels));
  };
  if (const auto& metric = experiment.checkpoint.metric) check(experiment.checkpoint, *metric);
  if (const auto& stopping = experiment.training.early_stopping) check(*stopping, stopping->metric);
  diagnostics.throw_if_any();
}

// All fields but the target.
std::vector<InputSpec> model_inputs(const std::vector<FieldSpec>& fields) {
  std::vector<InputSpec> inputs;
  for (size_t i = 0; i + 1 < fields.size(); ++i)
    inputs.push_back({fields[i].name, fields[i].sample});
  return inputs;
}

// Returns the properties of the targets for the loss. Replaces labels that the loss ignores by −100
// in both splits.
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

// Returns the number of different ids of the first input and the labels of both splits; 0 without.
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

// Returns the number of outputs for these targets: logits of classes, or numbers.
int64_t outputs_for(const DataSplit& data) {
  const TensorSpec target = target_sample(*data.train);
  if (target.dtype != DType::i32) return target.shape.rank() == 0 ? 1 : target.shape[-1];
  int64_t classes = static_cast<int64_t>(data.train->class_names().size());
  for (const auto& split : {data.train, data.eval}) {
    if (split) classes = std::max(classes, split->label_bound());
  }
  return classes;
}

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

// Sets the splits that a session reads. SessionOptions::data gets them as they were opened.
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

StreamInfo stream_info(const DatasetConfig& config, const Dataset& dataset, int64_t streams) {
  if (config.sampling != Sampling::streams) return {};
  return {.rows = streams, .steps = dataset.size() / streams};
}

// Returns whether the outputs are logits of a vocabulary: the data is text, or a head uses its
// size.
bool labels_are_tokens(const Experiment& experiment, const StepGraph& graph) {
  const Shape& output = graph.output_spec.shape;
  return output.rank() == 3 &&
         (experiment.data.train->has_tokens() ||
          (graph.asked_vocabulary && output[-1] == experiment.model.vocab_size));
}

// Returns the metrics of evaluations. Throws ConfigError for metrics that do not suit the targets.
std::vector<std::string> choose_metrics(const Experiment& experiment, TargetKind kind,
                                        const StepGraph& graph, const Engine& engine,
                                        const Dataset& data) {
  const EvaluationConfig& evaluation = experiment.evaluation;
  const TensorSpec& output = graph.output_spec;
  const bool tokens = labels_are_tokens(experiment, graph);
  // WordPiece leaves out blanks: its tokens do not tell the bytes of their text.
  const bool has_bytes = kind == TargetKind::labels && tokens && data.tokenizer() &&
                         data.tokenizer()->kind() != "wordpiece" &&
                         !experiment.data.train->next_token_input().empty();
  if (!evaluation.metrics) {
    // Defaults that the engine has no kernel for are left out.
    std::vector<std::string> names = default_metrics(kind, output, tokens);
    if (has_bytes) names.emplace_back(kBitsPerByte);
    std::erase_if(names, [&](const std::string& name) {
      const std::string_view op = metric_op(name, kind);
      return !op.empty() && kernel_rows(engine, op).empty();
    });
    return names;
  }
  Diagnostics diagnostics;
  for (const std::string& name : *evaluation.metrics) {
    std::string problem = metric_problem(name, kind, output);
    if (problem.empty() && name == kBitsPerByte && !has_bytes) {
      problem =
          "bits_per_byte needs text whose next tokens are the targets, and its tokenizer, which "
          "must keep blanks (not WordPiece)";
    }
    if (!problem.empty()) diagnostics.add(evaluation, "metrics", problem);
  }
  diagnostics.throw_if_any();
  return *evaluation.metrics;
}

// Gives an error that names a key of `parallelism` the place of that key.
void at_parallelism(const Experiment& experiment, const Error& error) {
  const std::string_view text = error.what();
  for (const char* key : {"pipeline", "pipeline_stages"}) {
    const std::string prefix = fmt::format("parallelism.{}: ", key);
    if (!text.starts_with(prefix)) continue;
    fail_at(experiment.parallelism, key, "{}", text.substr(prefix.size()));
  }
}

// Builds the graphs of all variants of a step, the longest last.
std::vector<StepGraph> training_graphs(const Session& session, const StepRequest& request) {
  std::vector<StepGraph> graphs;
  const size_t variants = session.lengths ? session.lengths->extents().size() : 1;
  // The longest comes first because all variants use its ZeRO units.
  for (size_t i = variants; i-- > 0;) {
    StepRequest variant = request;
    if (i + 1 < variants) {
      variant.log = {};
      variant.probe = {};
    }
    if (session.lengths) {
      const auto fields = session.lengths->fields(*session.data.train, i);
      variant.inputs = model_inputs(fields);
      variant.targets.sample = fields.back().sample;
    }
    if (!graphs.empty()) variant.same_state = &graphs.front();
    try {
      graphs.push_back(build_training_graph(variant));
    } catch (const Error& error) {
      at_parallelism(*session.experiment, error);
      throw;
    }
  }
  std::reverse(graphs.begin(), graphs.end());
  return graphs;
}

// Returns the sets of axes over which the graphs communicate, and with shards of layers also those
// that evaluations and checkpoints use.
std::set<std::string> axis_sets(const Mesh& mesh, const std::vector<StepGraph>& training,
                                const StepGraph* evaluation) {
  std::set<std::string> sets;
  const auto add = [&](const StepGraph& graph) {
    for (const Node& node : graph.graph.nodes) sets.insert(node.attributes.text(kOver));
  };
  for (const StepGraph& graph : training) add(graph);
  if (evaluation != nullptr) add(*evaluation);
  if (mesh.size("pipeline,expert,context,context_expert,tensor") > 1) {
    for (const char* axes :
         {mesh_axes::kDataAndPipeline, mesh_axes::kState, mesh_axes::kStateOfExpert,
          mesh_axes::kExpert, mesh_axes::kContext, mesh_axes::kTensor}) {
      if (mesh.size(axes) > 1 || axes == mesh_axes::kDataAndPipeline) sets.insert(mesh.over(axes));
    }
  }
  if (mesh.size(mesh_axes::kPipeline) > 1) {
    // Also those that the graph of this stage does not use, since all ranks make the same groups.
    for (const char* axes : {mesh_axes::kPipeline, mesh_axes::kPipelineBack}) sets.insert(axes);
    for (const char* axes : {mesh_axes::kSums, mesh_axes::kSumsOfExpert, mesh_axes::kReplica}) {
      if (!mesh.over(axes).empty()) sets.insert(mesh.over(axes));
    }
  }
  sets.erase("");
  return sets;
}

// Keys of the agreement do not contain paths: rank 0 may have opened other sessions for a choice,
// which have resolved its paths already.
std::shared_ptr<const TeacherModel> open_teacher(const std::string& path, size_t number,
                                                 const SessionOptions& options) {
  auto teacher = std::make_shared<TeacherModel>();
  // A run may write a newer checkpoint before another rank looks for it.
  const auto find = [&] {
    ResumeChoice found = find_checkpoint(path);
    teacher->kept = std::move(found.kept);
    return std::filesystem::absolute(found.checkpoint).lexically_normal().string();
  };
  teacher->checkpoint = options.agree(fmt::format("teacher {}", number), find);
  teacher->fingerprint = fingerprint_of_weights(teacher->checkpoint);
  teacher->experiment =
      load_config<Experiment>({.files = {teacher->checkpoint / "config.yaml"}, .overrides = {}});
  if (has_base_elsewhere(teacher->experiment.model)) {
    fail(ExitCode::usage,
         "the teacher {} has adapters alone (model.lora.save); a teacher needs save: all and base: "
         "f32 or bf16",
         teacher->checkpoint.string());
  }
  return teacher;
}

// Returns the schema of the data that a checkpoint was trained with.
DataSchema schema_of(const std::filesystem::path& checkpoint) {
  Checksums unverified;  // the tensors are read elsewhere
  return read_checkpoint_state(checkpoint, &unverified).data;
}

// Throws Error(usage) if a teacher knows other columns, classes or tokens than those of the data;
// warns of another normalization.
void check_teacher_data(const Session& session, const std::filesystem::path& checkpoint) {
  const std::filesystem::path run = run_of(checkpoint);
  if (const auto tokenizer = session.data.train->tokenizer(); tokenizer && holds_tokenizer(run)) {
    const std::string tokens = tokenizer_difference(*load_tokenizer(run), *tokenizer);
    if (!tokens.empty()) {
      fail(ExitCode::usage, "the teacher {} was trained with another tokenizer: {}",
           checkpoint.string(), tokens);
    }
  }
  const DataSchema saved = schema_of(checkpoint);
  const std::string difference = data_difference(session, saved);
  if (difference.empty()) return;
  if (!only_statistics_differ(saved, session.data_schema())) {
    fail(ExitCode::usage, "the teacher {} was trained with other data: {}", checkpoint.string(),
         difference);
  }
  if (!session.options.ranks.is_leader()) return;
  log_warning("the teacher {} was trained with inputs that are normalized otherwise: {}",
              checkpoint.string(), difference);
}

}  // namespace

std::string Session::teacher_fingerprint() const {
  std::string out;
  for (const auto& teacher : teachers) out += (out.empty() ? "" : "+") + teacher->fingerprint;
  return out;
}

std::string Session::teacher_checkpoints() const {
  std::string out;
  for (const auto& teacher : teachers) {
    out += (out.empty() ? "" : ", ") + teacher->checkpoint.string();
  }
  return out;
}

// A session in f64 (gradient check) has no 16-bit values to scale for.
bool Session::scales_loss() const {
  return experiment->precision.scales_loss() && options.compute == DType::f32;
}

double Session::first_loss_scale() const {
  return scales_loss() ? experiment->precision.init_scale.value_or(65536) : 1;
}

int64_t Session::scale_growth_interval() const {
  return scales_loss() ? experiment->precision.growth_interval.value_or(2000) : 0;
}

Collectives* Session::evaluation_ranks() const {
  if (mesh.size(mesh_axes::kDataAndPipeline) == 1) return nullptr;
  const std::string over = mesh.over(mesh_axes::kDataAndPipeline);
  return over.empty() ? options.ranks.collectives : &groups->along(over);
}

double Session::step_model_flops() const {
  if (executor->variants() > 1) return 0;
  return executor->training().model_flops * static_cast<double>(batch.micro_steps) /
         coordinates.pipeline.count;
}

std::vector<StepSchedule> Session::schedules() const {
  const int ranks = coordinates.pipeline.count;
  const ParallelismConfig& parallelism = experiment->parallelism;
  if (ranks > 1 && parallelism.pipeline_schedule == PipelineSchedule::interleaved) {
    return interleaved_schedules(batch.micro_steps, ranks,
                                 static_cast<int>(parallelism.virtual_stages));
  }
  const bool gpipe = parallelism.pipeline_schedule == PipelineSchedule::gpipe;
  const bool splits = parallelism.pipeline_schedule == PipelineSchedule::zero_bubble && ranks > 1;
  std::vector<StepSchedule> out;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t in_flight = ranks == 1 ? options.in_flight
                              : gpipe    ? batch.micro_steps
                                         : ranks - rank;
    out.push_back(step_schedule(batch.micro_steps, std::min(in_flight, batch.micro_steps),
                                splits ? std::optional<int64_t>(rank) : std::nullopt));
  }
  return out;
}

int64_t Session::tokens_of_sample(size_t variant) const {
  const DatasetConfig& train = *experiment->data.train;
  if (!train.has_tokens() && !experiment->model.vocab_size) return 0;
  int64_t tokens = 0;
  const auto& fields = data.train->fields();
  for (size_t i = 0; i + 1 < fields.size(); ++i) {
    // The first input, and of pairs the text that is written beside its source.
    if (i > 0 && fields[i].name != train.next_token_input()) continue;
    const Shape& shape = fields[i].sample.shape;
    if (shape.rank() > 0) tokens += lengths ? lengths->extents()[variant][i] : shape[0];
  }
  return tokens;
}

StepInputs step_inputs(const Session& session, int64_t step, const Batch& batch) {
  const TrainingConfig& training = session.experiment->training;
  return {.seed = static_cast<uint64_t>(session.experiment->seed),
          .step = step,
          .sample_offset = batch.sample_offset,
          .learning_rate = session.learning_rate(step),
          .inverse_valid = batch.loss_divisor > 0 ? 1.0 / batch.loss_divisor : 0.0,
          .max_grad_norm = training.max_grad_norm.value_or(0.0),
          .max_grad_value = training.max_grad_value.value_or(0.0),
          .scale_growth_interval = session.scale_growth_interval()};
}

int64_t Session::last_step_from(const TrainPosition& from) const {
  const TrainingConfig& training = experiment->training;
  if (training.max_steps) return *training.max_steps;
  const double samples = *training.num_epochs * static_cast<double>(data.train->size());
  return from.step + static_cast<int64_t>(std::ceil((samples - static_cast<double>(from.samples)) /
                                                    static_cast<double>(batch.global_batch)));
}

void Session::resume_at(const TrainPosition& from) {
  position = from;
  max_steps = last_step_from(from);
  const SourceMix* mix = data.train->sources();
  const int64_t last = position_at(max_steps).cursor;
  if (mix == nullptr || last <= mix->limit()) return;
  fail_at(experiment->data.train->location,
          "training draws {} samples, but with their max_epochs the sources have only {}; set "
          "training.max_steps to at most {}, or raise max_epochs",
          last, mix->limit(),
          position.step + (mix->limit() - position.cursor) / batch.global_batch);
}

LoaderOptions train_loader_options(const Session& session, int64_t first_step, int workers) {
  const DatasetConfig& data = *session.experiment->data.train;
  return {.global_batch = session.batch.global_batch,
          .micro_batch = session.batch.micro_batch,
          .rank = session.coordinates.data.index,
          .world = session.coordinates.data.count,
          .first_step = first_step,
          .first_sample = session.position_at(first_step).cursor,
          .order = data.order(),
          .seed = static_cast<uint64_t>(session.experiment->seed),
          .target_weights = session.train_targets,
          .mixing = session.options.noise ? data.mixing() : MixingOptions{},
          .classes = session.classes,
          .sources = session.executor->training().has_sources(),
          .lengths = session.lengths,
          .workers = workers,
          .slots = 4,
          .held = 2};
}

DataSchema Session::data_schema() const {
  const auto schema = data.train->schema();
  DataSchema out = schema ? *schema : DataSchema{};
  out.class_names = data.train->class_names();
  return out;
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
  const DataSchema saved = schema_of(checkpoint);
  if (only_statistics_differ(saved, session.data_schema())) return;
  const std::string difference = data_difference(session, saved);
  if (difference.empty() || !saved.recorded()) return;
  log_warning("the weights of {} were trained with other data: {}", checkpoint.string(),
              difference);
}

void read_by_schema(Session& session, const DataSchema& saved) {
  session.options.trained = std::make_shared<const DataSchema>(saved);
  session.options.data.reset();
  open_data(session);
  prepare_targets(*session.experiment->loss, session.data);
}

int loader_workers(const Session& session, const Dataset& dataset) {
  return session.experiment->data.workers_for(dataset, session.options.ranks.on_this_node());
}

Session open_session(Experiment& experiment, const SessionOptions& options, SelectedDevice chosen) {
  if (experiment.training.chooses_micro_batch()) {
    SessionOptions with_data = options;
    const auto choose = [&] { return std::to_string(choose_micro_batch(experiment, with_data)); };
    experiment.training.micro_batch_size = std::stoll(options.agree("micro-batch", choose));
    return open_session(experiment, with_data, std::move(chosen));
  }
  const bool exact = options.compute == DType::f64;  // on the reference engine
  RecomputeOptions recompute{
      .mode = options.recompute ? experiment.memory.recompute : Recompute::none,
      .keep = experiment.memory.keep_layers,
      .again = options.recompute ? experiment.memory.recompute_layers : std::vector<std::string>()};
  if (recompute.mode == Recompute::automatic) {
    if (!options.recompute_choice && !exact) {
      SessionOptions with_data = options;
      const auto choose = [&] {
        const RecomputeChoice choice = choose_recompute(experiment, with_data);
        return fmt::format("{} {}", static_cast<int>(choice.mode), choice.share);
      };
      std::istringstream made(options.agree("recomputation", choose));
      int mode = 0;
      RecomputeChoice& choice = with_data.recompute_choice.emplace();
      made >> mode >> choice.share;
      choice.mode = static_cast<Recompute>(mode);
      return open_session(experiment, with_data, std::move(chosen));
    }
    const RecomputeChoice choice = options.recompute_choice.value_or(RecomputeChoice());
    recompute.mode = choice.mode;
    recompute.share = choice.share;
  }
  Session session;
  session.experiment = &experiment;
  session.options = options;
  session.batch = check_ranks(experiment, options.ranks.world);
  open_data(session);
  const int64_t vocabulary = experiment.model.vocab_size ? 0 : vocabulary_of(*session.options.data);
  const DatasetConfig& data = *experiment.data.train;
  if (options.lengths) {
    session.lengths = data.length_plan(*session.data.train, session.batch.global_batch,
                                       static_cast<uint64_t>(experiment.seed));
  }
  if (options.targets) check_targets(session.data);
  session.resume_at({});
  TargetInfo targets = prepare_targets(*experiment.loss, session.data);
  targets.one_class = one_class_of(session.data);
  targets.mixed = options.noise && experiment.data.train->mixing().active();
  if (const SourceMix* mix = session.data.train->sources();
      mix != nullptr && mix->sources().size() > 1 && options.noise) {  // the checks need none
    targets.sources = static_cast<int64_t>(mix->sources().size());
  }
  if (const auto paths = experiment.loss->teachers(); !paths.empty() && options.teacher) {
    refuse_missing_paths(ObjectRef::of(*experiment.loss), ExitCode::storage);
    std::vector<std::string> checkpoints;
    for (const std::string& path : paths) {
      session.teachers.push_back(open_teacher(path, session.teachers.size(), options));
      check_teacher_data(session, session.teachers.back()->checkpoint);
      checkpoints.push_back(session.teachers.back()->checkpoint.string());
    }
    experiment.loss->set_teachers(checkpoints);
  }
  if (std::optional<std::string>& base = experiment.model.init_from;
      base && has_base_elsewhere(experiment.model) && std::filesystem::exists(*base)) {
    // A run may write newer weights later.
    const auto find = [&] {
      return std::filesystem::absolute(location_of_weights(*base)).lexically_normal().string();
    };
    base = options.agree("frozen base", find);
  }
  std::vector<const ModelConfig*> teachers;
  for (const auto& teacher : session.teachers) teachers.push_back(&teacher->experiment.model);
  if (experiment.logging.gradient_noise && session.batch.micro_batches() < 2) {
    fail_at(experiment.logging, "gradient_noise",
            "needs two micro-batches a step, whose gradients it compares; set "
            "training.micro_batch_size to at most {}",
            session.batch.global_batch / 2);
  }
  const bool keep_gradients = options.keep_gradients || experiment.logging.histogram_steps ||
                              session.batch.micro_batches() > 1;
  const Mesh mesh = rank_mesh(experiment, options.ranks.world, options.ranks.ranks_per_node);
  session.mesh = mesh;
  session.coordinates = coordinates_of(mesh, options.ranks.rank);
  // The device is opened on first use, so that errors of the model are reported before those of the
  // device.
  const auto open_chosen = [&]() -> const SelectedDevice& {
    if (chosen.device == nullptr) {
      chosen = options.gpu
                   ? SelectedDevice{&described_engine(), make_described_device(*options.gpu), {}}
                   : choose_device(experiment.device, options.engines, options.ranks.local_rank);
    }
    Agreement agree;
    if (options.agreement != nullptr) {
      agree = [ranks = options.agreement](const auto& key, const auto& make) {
        return ranks->choose_as_first(key, make);
      };
    }
    chosen.device->set_autotune(experiment.autotune, std::move(agree));
    return chosen;
  };
  const auto gpu_memory = [&]() -> uint64_t {
    const DeviceProperties device = open_chosen().device->properties();
    return device.on_host ? 0 : device.total_memory;
  };
  PrecisionConfig precision;
  if (!exact) precision = experiment.precision;
  if (options.fp8_in_f64) precision.fp8 = experiment.precision.fp8;
  const StepRequest request{
      .model = experiment.model,
      .loss = *experiment.loss,
      .optimizer = *experiment.optimizer,
      .teachers = teachers,
      .update = experiment.training,
      .gradient_squares = experiment.logging.gradient_noise,
      .inputs = model_inputs(session.data.train->fields()),
      .targets = targets,
      .vocabulary = vocabulary,
      .outputs = outputs_for(session.data),
      .streams = stream_info(data, *session.data.train, session.batch.global_batch),
      .micro_batch = session.batch.micro_batch,
      .micro_batches = session.batch.micro_batches(),
      .parallel = {.mesh = mesh,
                   .rank = options.ranks.rank,
                   .tensor_key = experiment.parallelism.location_of("tensor"),
                   .context_key = experiment.parallelism.location_of("context"),
                   .ring = experiment.parallelism.context_method == ContextMethod::ring,
                   .sequence = experiment.parallelism.sequence_parallel,
                   .sequence_key = experiment.parallelism.location_of("sequence_parallel"),
                   .product_pieces = experiment.parallelism.product_pieces,
                   .zero_stage = static_cast<int>(experiment.parallelism.zero_stage),
                   .bucket_bytes = experiment.parallelism.bucket_bytes(),
                   .reduce_dtype = options.compute == DType::f32
                                       ? experiment.parallelism.reduce_dtype
                                       : DType::f32,
                   .fixed = experiment.training.reduction == Reduction::fixed},
      .experts = {.mesh = mesh,
                  .rank = options.ranks.rank,
                  .key = experiment.parallelism.location_of("expert"),
                  .capacity_key = experiment.parallelism.location_of("expert_capacity"),
                  .buffer = experiment.parallelism.buffer_factor(),
                  .capacity = experiment.parallelism.capacity_factor()},
      .stages = experiment.parallelism.chooses_stages() ? std::vector<std::string>()
                                                        : *experiment.parallelism.pipeline_stages,
      .virtual_stages = static_cast<int>(experiment.parallelism.virtual_stages),
      .split_backward = experiment.parallelism.pipeline > 1 &&
                        experiment.parallelism.pipeline_schedule == PipelineSchedule::zero_bubble,
      .compute = options.compute,
      .precision = precision,
      .narrow_parameters =
          options.compute == DType::f32 && experiment.precision.narrow_parameters(),
      .noise = options.noise,
      .fuse = options.fuse,
      .gpu_memory = exact ? std::function<uint64_t()>() : gpu_memory,
      .has_fp8 = [&] { return !exact && open_chosen().device->properties().has_fp8; },
      .gpu = options.gpu,
      .keep_gradients = keep_gradients,
      .kept_bytes = exact ? KeptBytes() : recurrent_kept_bytes(open_chosen),
      .recompute = std::move(recompute),
      .memory = &experiment.memory,
      .log = options.log,
      .probe = options.probe};
  std::vector<StepGraph> variants = training_graphs(session, request);
  const StepGraph& training = variants.back();
  if (training.asked_vocabulary && !experiment.model.vocab_size) {
    experiment.model.vocab_size = request.vocabulary;
  }
  check_next_tokens(session, data, training);
  session.classes = experiment.loss->classes(training.output_spec);
  session.target_info = mixed_targets(*experiment.loss, training.output_spec, targets);
  check_data(session, training);
  session.train_targets =
      experiment.loss->target_weights(training.output_spec, session.target_info);
  if (session.lengths && session.lengths->cuts_targets() &&
      (!session.train_targets.by_label.empty() || experiment.loss->ignored_label())) {
    fail(ExitCode::usage,
         "class weights and ignore_index cannot be used with a curriculum, which cuts the samples");
  }
  ExecutorOptions executor{.engine = options.engines.reference,
                           .device = nullptr,
                           .collectives = options.ranks.collectives,
                           .groups = nullptr,
                           .topology = {.mesh = mesh,
                                        .rank = options.ranks.rank,
                                        .per_node = options.ranks.on_this_node()},
                           .micro_steps = session.batch.micro_steps,
                           .global_batch = session.batch.global_batch,
                           .fixed_reduction = request.parallel.fixed,
                           .keep_gradients = keep_gradients};
  if (exact) {
    executor.device = options.engines.reference->open(0);
  } else {
    executor.engine = open_chosen().engine;
    check_compute(experiment.precision, *chosen.device);
    session.device_note = chosen.note;
  }
  executor.schedule = session.schedules()[static_cast<size_t>(session.coordinates.pipeline.index)];
  std::optional<StepGraph> evaluation;
  if (options.evaluation && session.has_evaluation()) {
    StepRequest quiet = request;
    quiet.log = {};
    quiet.targets.sample = target_sample(*session.data.eval);
    quiet.targets.mixed = false;
    quiet.targets.sources = 0;
    quiet.streams = stream_info(data, *session.data.eval, session.batch.global_batch);
    session.target_kind = experiment.loss->target_kind(quiet.targets);
    session.metrics = choose_metrics(experiment, session.target_kind, training, *executor.engine,
                                     *session.data.eval);
    quiet.metrics = session.metrics;
    check_metrics(experiment, session.metrics, session.data.eval->sources());
    quiet.same_state = &training;
    evaluation = build_evaluation_graph(quiet);
    session.eval_targets = experiment.loss->target_weights(evaluation->output_spec, quiet.targets);
  }
  const std::set<std::string> sets = axis_sets(mesh, variants, evaluation ? &*evaluation : nullptr);
  if (options.ranks.collectives != nullptr && !sets.empty()) {
    session.groups = std::make_unique<const MeshGroups>(*options.ranks.collectives, mesh, sets);
    executor.groups = session.groups.get();
  }
  if (options.compute != DType::f64) executor.device = std::move(chosen.device);
  session.executor =
      std::make_unique<Executor>(std::move(executor), std::move(variants), std::move(evaluation));
  if (options.log_notices) log_notices(session.executor->device());
  if (experiment.generation && options.compute == DType::f32) check_samples(session);
  check_final_bias(session);
  return session;
}

}  // namespace dltrain
