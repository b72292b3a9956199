#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "checkpoint/base_weights.h"
#include "compile/described_gpu.h"
#include "device/engine.h"
#include "run/memory_fit.h"
#include "run/samples.h"
#include "run/session_data.h"
#include "run/session_metrics.h"
#include "run/teachers.h"

namespace dltrain {
namespace {

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

// Makes the choices that the configuration leaves to the program, the same on all ranks.
void make_choices(Experiment& experiment, SessionOptions& options) {
  if (experiment.training.chooses_micro_batch()) {
    const auto choose = [&] { return std::to_string(choose_micro_batch(experiment, options)); };
    experiment.training.micro_batch_size = std::stoll(options.agree("micro-batch", choose));
  }
  if (options.recompute && experiment.memory.recompute == Recompute::automatic &&
      !options.recompute_choice && options.compute != DType::f64) {
    const auto choose = [&] {
      const RecomputeChoice choice = choose_recompute(experiment, options);
      return fmt::format("{} {}", static_cast<int>(choice.mode), choice.share);
    };
    std::istringstream made(options.agree("recomputation", choose));
    int mode = 0;
    RecomputeChoice& choice = options.recompute_choice.emplace();
    made >> mode >> choice.share;
    choice.mode = static_cast<Recompute>(mode);
  }
}

RecomputeOptions recompute_options(const MemoryConfig& memory, const SessionOptions& options) {
  if (!options.recompute) return {.mode = Recompute::none, .keep = memory.keep_layers};
  RecomputeOptions out{
      .mode = memory.recompute, .keep = memory.keep_layers, .again = memory.recompute_layers};
  if (out.mode == Recompute::automatic) {
    const RecomputeChoice choice = options.recompute_choice.value_or(RecomputeChoice());
    out.mode = choice.mode;
    out.share = choice.share;
  }
  return out;
}

// Makes the path of weights that the checkpoints leave out absolute, and of a run that of its
// present checkpoint: the run may write newer weights later.
void fix_frozen_base(Experiment& experiment, const SessionOptions& options) {
  std::optional<std::string>& base = experiment.model.init_from;
  if (!base || !has_base_elsewhere(experiment.model) || !std::filesystem::exists(*base)) return;
  const auto find = [&] {
    return std::filesystem::absolute(location_of_weights(*base)).lexically_normal().string();
  };
  base = options.agree("frozen base", find);
}

// Sets the position of this rank among all.
void place_rank(Session& session) {
  const RunRanks& ranks = session.options.ranks;
  session.mesh = rank_mesh(*session.experiment, ranks.world, ranks.ranks_per_node);
  session.coordinates = coordinates_of(session.mesh, ranks.rank);
}

// Opens the device unless `chosen` has it.
const SelectedDevice& open_device(const Session& session, SelectedDevice& chosen) {
  const SessionOptions& options = session.options;
  if (chosen.device == nullptr) {
    chosen =
        options.gpu
            ? SelectedDevice{&described_engine(), make_described_device(*options.gpu), {}}
            : choose_device(session.experiment->device, options.engines, options.ranks.local_rank);
  }
  Agreement agree;
  if (options.agreement != nullptr) {
    agree = [ranks = options.agreement](const auto& key, const auto& make) {
      return ranks->choose_as_first(key, make);
    };
  }
  chosen.device->set_autotune(session.experiment->autotune, std::move(agree));
  return chosen;
}

using DeviceOpener = std::function<const SelectedDevice&()>;

// `open`: the device is opened on first use, so that errors of the model are reported before those
// of the device.
StepRequest step_request(const Session& session, const TargetInfo& targets, int64_t vocabulary,
                         const DeviceOpener& open) {
  const Experiment& experiment = *session.experiment;
  const SessionOptions& options = session.options;
  const bool exact = options.compute == DType::f64;  // on the reference engine
  std::vector<const ModelConfig*> teachers;
  for (const auto& teacher : session.teachers) teachers.push_back(&teacher->experiment.model);
  PrecisionConfig precision;
  if (!exact) precision = experiment.precision;
  if (options.fp8_in_f64) precision.fp8 = experiment.precision.fp8;
  const auto gpu_memory = [open]() -> uint64_t {
    const DeviceProperties device = open().device->properties();
    return device.on_host ? 0 : device.total_memory;
  };
  return {
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
      .streams =
          stream_info(*experiment.data.train, *session.data.train, session.batch.global_batch),
      .micro_batch = session.batch.micro_batch,
      .micro_batches = session.batch.micro_batches(),
      .parallel = {.mesh = session.mesh,
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
      .experts = {.mesh = session.mesh,
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
      .has_fp8 =
          [open, exact](int64_t block) {
            const DeviceProperties& device = open().device->properties();
            return !exact && (block == 0 ? device.has_fp8 : device.fp8_block == block);
          },
      .gpu = options.gpu,
      .keep_gradients = options.keep_gradients || experiment.logging.histogram_steps ||
                        session.batch.micro_batches() > 1,
      .kept_bytes = exact ? KeptBytes() : recurrent_kept_bytes(open),
      .recompute = recompute_options(experiment.memory, options),
      .memory = &experiment.memory,
      .log = options.log,
      .probe = options.probe};
}

// Checks the training graph against the data, and sets what follows from both.
void set_targets(Session& session, const StepGraph& training, const TargetInfo& targets) {
  const Loss& loss = *session.experiment->loss;
  if (!targets.sample) {
    const TensorSpec batch = loss.targets(training.output_spec, targets);
    const TensorSpec sample{Shape(batch.shape.dims().subspan(1)),
                            is_floating(batch.dtype) ? DType::f32 : batch.dtype};
    for (auto* split : {&session.data.train, &session.data.eval}) {
      if (*split && !(*split)->has_targets()) *split = without_targets(*split, sample);
    }
  }
  check_next_tokens(session, *session.experiment->data.train, training);
  session.classes = loss.classes(training.output_spec);
  session.target_info = mixed_targets(loss, training.output_spec, targets);
  check_data(session, training);
  session.train_targets = loss.target_weights(training.output_spec, session.target_info);
  if (session.lengths && session.lengths->cuts_targets() &&
      (!session.train_targets.by_label.empty() || loss.ignored_label())) {
    fail(ExitCode::usage,
         "class weights and ignore_index cannot be used with a curriculum, which cuts the samples");
  }
}

// Builds the graph of evaluations and sets their metrics.
StepGraph evaluation_graph(Session& session, StepRequest request, const StepGraph& training,
                           const Engine& engine) {
  const Experiment& experiment = *session.experiment;
  const Dataset& data = *session.data.eval;
  request.log = {};
  request.targets.sample = target_sample(data);
  request.targets.mixed = false;
  request.targets.sources = 0;
  request.streams = stream_info(*experiment.data.train, data, session.batch.global_batch);
  session.target_kind = experiment.loss->target_kind(request.targets);
  session.metrics = choose_metrics(experiment, session.target_kind, training, engine, data);
  request.metrics = session.metrics;
  check_metrics(experiment, session.metrics, data.sources());
  request.same_state = &training;
  StepGraph evaluation = build_evaluation_graph(request);
  session.eval_targets = experiment.loss->target_weights(evaluation.output_spec, request.targets);
  return evaluation;
}

}  // namespace

Session open_session(Experiment& experiment, const SessionOptions& given, SelectedDevice chosen) {
  Session session;
  session.experiment = &experiment;
  session.options = given;
  const SessionOptions& options = session.options;
  make_choices(experiment, session.options);
  session.batch = check_ranks(experiment, options.ranks.world);
  open_data(session);
  const int64_t vocabulary = experiment.model.vocab_size ? 0 : vocabulary_of(*options.data);
  if (options.lengths) {
    session.lengths = experiment.data.train->length_plan(
        *session.data.train, session.batch.global_batch, static_cast<uint64_t>(experiment.seed));
  }
  if (options.targets) check_targets(session.data);
  session.resume_at({});
  const TargetInfo targets = step_targets(session);
  open_teachers(session);
  fix_frozen_base(experiment, options);
  if (experiment.logging.gradient_noise && session.batch.micro_batches() < 2) {
    fail_at(experiment.logging, "gradient_noise",
            "needs two micro-batches a step, whose gradients it compares; set "
            "training.micro_batch_size to at most {}",
            session.batch.global_batch / 2);
  }
  place_rank(session);
  const DeviceOpener open = [&]() -> const SelectedDevice& { return open_device(session, chosen); };
  const StepRequest request = step_request(session, targets, vocabulary, open);
  std::vector<StepGraph> variants = training_graphs(session, request);
  const StepGraph& training = variants.back();
  if (training.asked_vocabulary && !experiment.model.vocab_size) {
    experiment.model.vocab_size = request.vocabulary;
  }
  set_targets(session, training, targets);
  ExecutorOptions executor{.engine = options.engines.reference,
                           .device = nullptr,
                           .collectives = options.ranks.collectives,
                           .groups = nullptr,
                           .topology = {.mesh = session.mesh,
                                        .rank = options.ranks.rank,
                                        .per_node = options.ranks.on_this_node()},
                           .micro_steps = session.batch.micro_steps,
                           .global_batch = session.batch.global_batch,
                           .fixed_reduction = request.parallel.fixed,
                           .keep_gradients = request.keep_gradients};
  const bool exact = options.compute == DType::f64;
  if (exact) {
    executor.device = options.engines.reference->open(0);
  } else {
    executor.engine = open().engine;
    check_compute(experiment.precision, *chosen.device);
    session.device_note = chosen.note;
  }
  executor.schedule = session.schedules()[static_cast<size_t>(session.coordinates.pipeline.index)];
  std::optional<StepGraph> evaluation;
  if (options.evaluation && session.has_evaluation()) {
    evaluation = evaluation_graph(session, request, training, *executor.engine);
  }
  const std::set<std::string> sets =
      axis_sets(session.mesh, variants, evaluation ? &*evaluation : nullptr);
  if (options.ranks.collectives != nullptr && !sets.empty()) {
    session.groups =
        std::make_unique<const MeshGroups>(*options.ranks.collectives, session.mesh, sets);
    executor.groups = session.groups.get();
  }
  if (!exact) executor.device = std::move(chosen.device);
  session.executor =
      std::make_unique<Executor>(std::move(executor), std::move(variants), std::move(evaluation));
  if (options.log_notices) log_notices(session.executor->device());
  if (experiment.generation && options.compute == DType::f32) check_samples(session);
  check_final_bias(session);
  return session;
}

}  // namespace dltrain
