#include "experiment/experiment.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/memory.h"
#include "config/paths.h"
#include "config/suggest.h"
#include "config/tree.h"
#include "nn/metrics.h"
#include "nn/plugin.h"

namespace dltrain {
namespace {

// `metric` is a std::string or an optional one.
template <typename Metric>
void describe_metric(Fields& f, Metric& metric, std::optional<MetricMode>& mode,
                     const std::string& doc) {
  f.text("metric", metric, {.doc = doc, .known_as = {"monitor", "metric_for_best_model"}});
  f.choice("mode", mode,
           {{"min", MetricMode::min, "smaller is better"},
            {"max", MetricMode::max, "greater is better"}},
           {.doc = "Which values are better; absent: min for loss, errors and perplexity, max for "
                   "other metrics",
            .known_as = {"greater_is_better"}});
}

}  // namespace

void EarlyStoppingConfig::describe(Fields& f) {
  describe_metric(f, metric, mode, "The metric of the evaluations that must improve");
  f.integer("patience", patience,
            {.doc = "Consecutive evaluations without improvement after which the run ends",
             .required = true,
             .min = 1});
  f.number("min_delta", min_delta,
           {.doc = "An improvement must be greater than this",
            .min = 0,
            .known_as = {"threshold", "early_stopping_threshold"}});
}

MetricWatch EarlyStoppingConfig::watch(const MetricRecord& record) const {
  return {metric, mode.value_or(default_mode(metric)), min_delta, record};
}

MetricWatch CheckpointConfig::watch(const MetricRecord& record) const {
  const std::string watched = metric.value_or("loss");
  return {watched, mode.value_or(default_mode(watched)), 0, record};
}

void TrainingConfig::describe(Fields& f) {
  f.integer("global_batch_size", global_batch_size,
            {.doc = "Samples of one optimizer step, over all ranks and micro-batches",
             .min = 1,
             .max = 1e9,
             .known_as = {"batch_size", "train_batch_size", "per_device_train_batch_size"}});
  f.integer("micro_batch_size", micro_batch_size,
            {.doc = "Samples that one rank processes at a time; default: its share of the global "
                    "batch divided by gradient_accumulation_steps. `auto`: the largest number that "
                    "fits the memory by its plan; the global batch, and so the losses but for "
                    "rounding, stay. A resumed run keeps the number",
             .min = 1,
             .max = 1e9,
             .known_as = {"micro_batch"}});
  f.integer("gradient_accumulation_steps", gradient_accumulation_steps,
            {.doc = "Micro-batches of a rank in one step; follows from the other two",
             .min = 1,
             .max = 1e9,
             .known_as = {"accumulation_steps", "grad_accumulation"}});
  f.integer("max_steps", max_steps,
            {.doc = "Optimizer steps of the run",
             .min = 1,
             .max = 1e15,
             .known_as = {"steps", "iterations"}});
  f.number("num_epochs", num_epochs,
           {.doc = "Passes over the training data, rounded up to full steps",
            .max = 1e9,
            .above = 0,
            .known_as = {"epochs", "num_train_epochs"}});
  f.number(
      "max_time", max_time,
      {.doc = "Seconds after which the run stops with a checkpoint and exit code 75", .above = 0});
  UpdateConfig::describe(f);
  f.choice("on_non_finite", on_non_finite,
           {{"stop", OnNonFinite::stop, "end the run with exit code 4"},
            {"skip", OnNonFinite::skip, "skip the update and continue"}},
           {.doc = "What happens when a loss or gradient is not finite"});
  f.choice("reduction", reduction,
           {{"fast", Reduction::fast, "in the order of the layout of ranks and micro-steps"},
            {"fixed", Reduction::fixed,
             "as one binary tree over the micro-batches of the global batch: the same "
             "bits for every number of ranks and micro-steps at one micro_batch_size. "
             "Needs one more copy of the gradients for each doubling of the micro-steps "
             "of a rank"}},
           {.doc = "In which order the gradients of micro-batches are added, and statistics and "
                   "metrics with them",
            .known_as = {"deterministic_reduction"}});
  f.integer("verify_replicas", verify_replicas,
            {.doc = "Steps between comparisons of the parameters of all ranks that must have equal "
                    "ones, which are also compared before every checkpoint; where memory or a "
                    "device has changed them, the run ends with exit code 6 without saving. Needs "
                    "zero_stage: 0 and expert: 1",
             .min = 1,
             .max = 1e15});
  f.section("early_stopping", early_stopping,
            {.doc = "End the run, with exit code 0, when a metric of the evaluations has stopped "
                    "improving; `early_stopping: 5` means patience 5"});
}

void TrainingConfig::validate(Diagnostics& diagnostics) const {
  UpdateConfig::validate(diagnostics);
  if (!global_batch_size && !micro_batch_size) {
    diagnostics.add(location, "training needs global_batch_size");
  }
  if (chooses_micro_batch() && (!global_batch_size || gradient_accumulation_steps)) {
    diagnostics.add(*this, "micro_batch_size", "{}",
                    global_batch_size ? "auto chooses gradient_accumulation_steps too; leave it out"
                                      : "auto divides the global batch; give global_batch_size");
  }
  if (!max_steps && !num_epochs)
    diagnostics.add(location, "training needs max_steps or num_epochs");
  if (max_steps && num_epochs) {
    diagnostics.add(*this, "num_epochs", "max_steps and num_epochs are both given; keep one");
  }
  if (global_batch_size) check_division(*this, *global_batch_size, 1, "rank", diagnostics);
}

void ParallelismConfig::describe(Fields& f) {
  f.choice("layout", layout,
           {{"given", LayoutChoice::given, "by the keys below"},
            {"auto", LayoutChoice::automatic,
             "`train`, `profile` and `plan` choose tensor, sequence_parallel, pipeline and its "
             "schedule, zero_stage, training.micro_batch_size and memory.recompute: the fastest "
             "for the started ranks that fits, by the estimates of `plan --search`. `context` and "
             "`expert` stay as given, as does the global batch. One rank has no layout"}},
           {.doc = "How the ranks share the model"});
  f.integer("data", data,
            {.doc = "Data-parallel ranks; −1: as many as were started",
             .min = -1,
             .known_as = {"data_parallel", "dp"}});
  f.integer("tensor", tensor,
            {.doc = "Ranks that share each layer (tensor parallelism): neighbouring ranks compute "
                    "shards of the products of the same samples. The number of ranks is data × "
                    "context × tensor × pipeline",
             .min = 1,
             .max = 1024,
             .known_as = {"tensor_parallel", "tp", "tensor_model_parallel_size",
                          "tensor_parallel_size", "tensor_parallel_degree"}});
  f.boolean("sequence_parallel", sequence_parallel,
            {.doc = "With `tensor`: each rank has its rows only (samples or tokens) of the values "
                    "between the products that ranks share. Activations take less memory, and "
                    "messages have as many bytes",
             .known_as = {"sp"}});
  f.integer(
      "product_pieces", product_pieces,
      {.doc = "With `sequence_parallel`: pieces into which products are cut in the forward, so "
              "that the messages before or after them are on their way while a product runs; "
              "1: none. Absent: what is fastest by the cost model on a GPU, 1 on the CPU",
       .min = 1,
       .max = 16,
       .known_as = {"tp_comm_overlap", "async_tensor_parallel"}});
  f.integer(
      "context", context,
      {.doc = "Ranks that share the tokens of each sample (context parallelism): each computes "
              "a part of them, and attention gathers keys and values. For long texts: "
              "activations take 1/context of the memory",
       .min = 1,
       .max = 1024,
       .known_as = {"context_parallel", "cp", "context_parallel_size", "context_parallel_degree"}});
  f.choice("context_method", context_method,
           {{"all_gather", ContextMethod::all_gather,
             "every rank gets the keys and values of all tokens, in the backward again"},
            {"ring", ContextMethod::ring,
             "they pass from rank to rank while attention to those that have arrived is "
             "computed"}},
           {.doc = "How attention reaches the tokens of other ranks",
            .known_as = {"cp_comm_type", "rotate_method"}});
  f.integer("pipeline", pipeline,
            {.doc = "Stages of the model (pipeline parallelism): each group of ranks has some of "
                    "the layers, and the micro-batches of a step pass through them",
             .min = 1,
             .max = 64,
             .known_as = {"pipeline_parallel", "pp", "pipeline_model_parallel_size",
                          "pipeline_parallel_size", "pipeline_parallel_degree"}});
  f.integer(
      "expert", expert,
      {.doc = "Ranks over which the experts of a mixture (layer moe) are divided. It does not "
              "multiply the number of ranks: groups of so many data-parallel and context ranks "
              "exchange their tokens",
       .min = 1,
       .max = 1024,
       .known_as = {"expert_parallel", "ep", "expert_model_parallel_size", "expert_parallel_size",
                    "expert_parallel_degree", "ep_size"}});
  f.text(
      "expert_buffer", expert_buffer,
      {.doc = "Rows that a rank has room for in a message to another rank of its group: `worst`, "
              "those of all its tokens; or a multiple of the average. If a step needs more, it "
              "changes nothing and the run ends with exit code 5"});
  f.text("expert_capacity", expert_capacity,
         {.doc = "Tokens of a micro-batch that an expert takes in training, the first ones: "
                 "`dropless`, all; or a multiple of the average, and further tokens go without it",
          .known_as = {"capacity_factor", "moe_capacity_factor", "moe_expert_capacity_factor"}});
  f.choice(
      "pipeline_schedule", pipeline_schedule,
      {{"1f1b", PipelineSchedule::one_forward_one_backward,
        "forward and backward in turn: a stage has at most as many micro-batches in memory as "
        "there are stages"},
       {"gpipe", PipelineSchedule::gpipe, "all forwards, then all backwards"},
       {"interleaved", PipelineSchedule::interleaved,
        "1f1b with several stages on each rank (virtual_stages), between which it takes turns: "
        "ranks wait less, and exchange more messages"},
       {"zero_bubble", PipelineSchedule::zero_bubble,
        "1f1b that computes the gradients of weights while ranks would wait (ZB-H1, Qi et al. "
        "2023): they wait a third, and every stage has as many micro-batches in memory as there "
        "are stages, and one more"}},
      {.doc = "Order of the micro-batches on a rank. Losses do not depend on it"});
  f.integer(
      "virtual_stages", virtual_stages,
      {.doc = "Stages of each rank along `pipeline`, with pipeline_schedule interleaved: stage "
              "s is on rank s modulo `pipeline`",
       .min = 1,
       .max = 64,
       .known_as = {"interleave", "num_virtual_stages", "virtual_pipeline_degree",
                    "virtual_pipeline_model_parallel_size"}});
  f.texts("pipeline_stages", pipeline_stages,
          {.doc = "Layers with which the second and every later stage begin: their paths, as "
                  "`dltrain plan` prints them. Absent or `auto`: chosen by the time of the layers "
                  "and the size of messages",
           .scalar_ok = true});
  f.number("timeout", timeout,
           {.doc = "Seconds without a heartbeat of a rank, or of waiting in a collective, after "
                   "which the run ends with exit code 6",
            .min = 0.1,
            .max = 864000,
            .known_as = {"ddp_timeout", "nccl_timeout"}});
  f.number("join_timeout", join_timeout,
           {.doc = "Seconds that the first rank waits for the others", .min = 0.1, .max = 864000});
  f.number("straggler_factor", straggler_factor,
           {.doc = "A rank is reported as slow if its time per step, without waiting for others, "
                   "stays above this multiple of the median; 0: never",
            .min = 0,
            .max = 1000});
  f.integer("zero_stage", zero_stage,
            {.doc = "What is sharded over the data-parallel ranks (ZeRO): 0 nothing, 1 "
                    "optimizer moments and master weights, 2 gradients too, 3 parameters too",
             .min = 0,
             .max = 3,
             .known_as = {"zero", "stage", "fsdp", "zero_optimization"}});
  f.text("zero_shard_size", zero_shard_size,
         {.doc = "Ranks over which ZeRO shards: `all`; `node`: those of each node; or a number of "
                 "neighbouring ranks. Every such group holds all state, gathers stay within it, "
                 "and gradients are added between groups once a step (hybrid sharding)",
          .known_as = {"mics_shard_size", "zero_hpz_partition_size", "dp_shard_size",
                       "data_parallel_shard_degree", "sharding_strategy", "hybrid_shard"}});
  f.number("bucket_mb", bucket_mb,
           {.doc = "MiB of f32 gradients or parameters that are sent as one message",
            .max = 65536,
            .above = 0,
            .known_as = {"bucket_cap_mb", "reduce_bucket_size"}});
  f.choice("reduce_dtype", reduce_dtype,
           {{"f32", DType::f32, "as they are"},
            {"bf16", DType::bf16, "rounded on each rank, added in f32 and rounded again"}},
           {.doc = "Element type in which f32 gradients are sent between ranks",
            .known_as = {"communication_data_type", "compression", "allreduce_dtype"}});
  f.choice(
      "collectives", collectives,
      {{"auto", CollectiveBackendKind::automatic,
        "nccl if every rank has its own GPU and the library, otherwise staged"},
       {"nccl", CollectiveBackendKind::nccl, "NVIDIA's library, or an error"},
       {"staged", CollectiveBackendKind::staged, "through host memory; ranks may share a GPU"}},
      {.doc = "Backend of collectives between ranks on GPUs",
       .known_as = {"backend", "ddp_backend", "distributed_backend"}});
}

void MemoryConfig::describe(Fields& f) {
  f.choice(
      "recompute", recompute,
      {{"none", Recompute::none, "keep everything that the backward needs"},
       {"selective", Recompute::selective,
        "recompute cheap ops: all but matrix products, convolutions, attention and "
        "recurrent networks"},
       {"blocks", Recompute::blocks, "recompute every copy of a `repeat` from its input"},
       {"full", Recompute::full, "recompute everything, in segments chosen for the least memory"},
       {"auto", Recompute::automatic,
        "recompute what takes the least time such that the run fits memory.budget; nothing if it "
        "fits without"}},
      {.doc = "What the backward recomputes instead of keeping it (gradient "
              "checkpointing): less memory, more arithmetic, the same bits. `dltrain "
              "plan` prints both",
       .known_as = {"gradient_checkpointing", "activation_checkpointing"}});
  f.texts("keep_layers", keep_layers,
          {.doc = "Patterns of layers whose activations are kept, whatever `recompute` says: "
                  "`h.0.*`, or `*.attn`",
           .scalar_ok = true});
  f.texts("recompute_layers", recompute_layers,
          {.doc = "Patterns of layers whose activations are recomputed, whatever `recompute` says",
           .scalar_ok = true});
  f.text("budget", budget,
         {.doc = "Memory that the run may use, of the machine on CPUs, of each GPU otherwise: a "
                 "size such as `20GiB` or `80GB`, or `device`: what is there. A run that needs "
                 "more ends before its first step with exit code 5",
          .known_as = {"limit", "max_memory"}});
}

void MemoryConfig::validate(Diagnostics& diagnostics) const {
  if (!keep_layers.empty() && recompute == Recompute::none && recompute_layers.empty()) {
    diagnostics.add(*this, "keep_layers",
                    "keep_layers has no effect with recompute: none, which keeps all activations");
  }
  const auto bytes = parse_bytes(budget);
  if (budget == "device" || (bytes && *bytes >= (uint64_t{1} << 20))) return;
  diagnostics.add(*this, "budget",
                  "'{}' is neither device nor a size of at least 1 MiB, such as 20GiB or 80GB",
                  budget);
}

void CheckpointConfig::describe(Fields& f) {
  f.integer("save_steps", save_steps,
            {.doc = "Steps between checkpoints; absent: only by the other keys, at the end, and "
                    "after a signal (after SIGUSR1 training continues)",
             .min = 1,
             .known_as = {"save_every", "save_interval"}});
  f.number("save_epochs", save_epochs,
           {.doc = "Passes over the training data between checkpoints", .above = 0});
  f.number("save_minutes", save_minutes, {.doc = "Minutes between checkpoints", .above = 0});
  f.integer("save_total_limit", save_total_limit,
            {.doc = "Number of newest checkpoints that are kept; 0: all. `latest` and `best` are "
                    "always kept",
             .min = 0,
             .known_as = {"keep", "keep_last"}});
  f.integer("keep_every", keep_every,
            {.doc = "Checkpoints at multiples of this step are never removed", .min = 1});
  f.boolean("async", async,
            {.doc = "Write checkpoints in the background, from a snapshot in host memory"});
  describe_metric(f, metric, mode,
                  "The metric of the evaluations that selects the checkpoint `best`; absent: loss. "
                  "An evaluation that is better than all earlier ones saves a checkpoint");
}

void StudyConfig::describe(Fields& f) {
  f.text("study", study, {.doc = "The study that the run belongs to"});
  f.text("goal", goal, {.doc = "What the run shall show"});
  f.text("notes", notes, {.doc = "Anything worth keeping"});
  f.texts("tags", tags, {.doc = "Words to find the run by", .scalar_ok = true});
}

void HooksConfig::describe(Fields& f) {
  f.text("checkpoint", checkpoint,
         {.doc = "Run after each saved checkpoint, with its folder in DLTRAIN_CHECKPOINT and "
                 "DLTRAIN_STEP"});
  f.text("evaluation", evaluation,
         {.doc = "Run after each evaluation, with its results as JSON in DLTRAIN_RESULT and "
                 "DLTRAIN_STEP"});
  f.text("end", end,
         {.doc = "Run when the run has ended or failed, with its exit code in DLTRAIN_EXIT_CODE"});
  f.number("timeout", timeout, {.doc = "Seconds after which a command is killed", .above = 0});
}

void WandbConfig::describe(Fields& f) {
  f.text("project", project, {.doc = "The project that the run belongs to", .required = true});
  f.text("entity", entity, {.doc = "User or team; absent: the default of the account"});
  f.choice("mode", mode, {{"offline", WandbMode::offline, "files that `wandb sync` uploads"}},
           {.doc = "dltrain writes files only; it sends nothing"});
}

void LoggingConfig::describe(Fields& f) {
  f.integer("logging_steps", logging_steps,
            {.doc = "Steps between lines of metrics.jsonl, of log.txt, and of the console "
                    "if it is not a terminal",
             .min = 1,
             .known_as = {"log_steps", "log_interval", "log_every"}});
  f.boolean("tensorboard", tensorboard,
            {.doc = "Write event files for TensorBoard into the folder tensorboard of the run: "
                    "scalars, the first training images, the configuration",
             .known_as = {"report_to"}});
  f.section("wandb", wandb,
            {.doc = "Write the run for Weights & Biases into the folder wandb of the run: "
                    "`wandb sync RUN/wandb/offline-run-…` uploads it; `wandb: NAME` gives the "
                    "project"});
  f.integer("histogram_steps", histogram_steps,
            {.doc = "Steps between histograms of all weights and gradients in TensorBoard; absent: "
                    "none",
             .min = 1});
  f.boolean("gradient_noise", gradient_noise,
            {.doc = "Log gradient_noise_scale, the noise of the gradient over its square, in "
                    "samples: an estimate of the batch above which larger ones save few steps. "
                    "Needs two micro-batches a step",
             .known_as = {"gradient_noise_scale", "noise_scale"}});
  f.text(
      "prometheus", prometheus,
      {.doc = "File that gets the newest values of metrics.jsonl in the format of Prometheus, at "
              "most once a second, for the textfile collector of node_exporter"});
}

void LoggingConfig::validate(Diagnostics& diagnostics) const {
  if (histogram_steps && !tensorboard) {
    diagnostics.add(*this, "histogram_steps", "histogram_steps needs tensorboard: true");
  }
}

void EvaluationConfig::describe(Fields& f) {
  f.integer("eval_steps", eval_steps,
            {.doc = "Steps between evaluations; absent: only at the end",
             .min = 1,
             .known_as = {"eval_interval", "eval_every"}});
  f.number("eval_epochs", eval_epochs,
           {.doc = "Passes over the training data between evaluations", .above = 0});
  f.integer("samples", samples,
            {.doc = "Number of samples to evaluate, from the first; absent: all", .min = 1});
  f.integer("predictions", predictions,
            {.doc = "Number of samples, from the first of the eval split, whose predictions each "
                    "evaluation writes to predictions/step-….jsonl of the run; absent: none",
             .min = 1,
             .known_as = {"fixed_batch", "num_predictions"}});
  f.texts("metrics", metrics,
          {.doc = "Metrics besides the loss: accuracy, perplexity, bits_per_byte (text with a "
                  "tokenizer), top_K (top_5), precision, recall, f1, confusion; for numbers mae, "
                  "mse, rmse, r2; absent: those that suit the loss (for text accuracy, perplexity "
                  "and bits_per_byte)",
           .scalar_ok = true,
           .known_as = {"metric"}});
}

void EvaluationConfig::validate(Diagnostics& diagnostics) const {
  for (const std::string& name : metrics.value_or(std::vector<std::string>())) {
    const std::string problem = metric_name_problem(name);
    if (!problem.empty()) diagnostics.add(*this, "metrics", problem);
  }
}

void GenerationConfig::describe(Fields& f) {
  f.integer("sample_steps", sample_steps,
            {.doc = "Steps between samples; absent: only at the end",
             .min = 1,
             .known_as = {"every", "sample_every", "sample_interval"}});
  f.number("sample_epochs", sample_epochs,
           {.doc = "Passes over the training data between samples", .above = 0});
  f.texts("prompts", prompts,
          {.doc = "Texts that are continued, one sample each",
           .required = true,
           .min_size = 1,
           .scalar_ok = true,
           .known_as = {"prompt"}});
  f.integer("max_tokens", max_tokens,
            {.doc = "New tokens of a sample",
             .min = 1,
             .max = 1e6,
             .known_as = {"max_new_tokens", "max_length"}});
  f.number(
      "temperature", temperature,
      {.doc = "Logits are divided by it; 0: always the most likely token", .min = 0, .max = 1000});
  f.integer(
      "top_k", top_k,
      {.doc = "Draw from this number of likeliest tokens; 0: all", .min = 0, .max = INT32_MAX});
  f.number("top_p", top_p,
           {.doc = "Draw from the fewest likeliest tokens that together have this probability",
            .max = 1,
            .above = 0});
  f.number("repetition_penalty", repetition_penalty,
           {.doc = "Values above 1 make tokens that the text already has less likely",
            .max = 1000,
            .above = 0});
  f.integer("seed", seed, {.doc = "Seed of the draws; default: that of the run", .min = 0});
  f.texts("stop", stop, {.doc = "Texts that end a sample", .scalar_ok = true});
}

void GenerationConfig::validate(Diagnostics& diagnostics) const {
  if (!contains(stop, "")) return;
  diagnostics.add(*this, "stop", "an empty text would end every sample at once");
}

void Experiment::describe(Fields& f) {
  f.text("name", name, {.doc = "Name of the run; the run folder is runs/<name> by default"});
  f.section("experiment", experiment,
            {.doc = "Why the run is made, for `dltrain runs`; changes nothing in the run"});
  f.integer("seed", seed,
            {.doc = "Initial weights, data order and dropout are functions of it", .min = 0});
  f.text("device", device, {.doc = "auto (a GPU if there is one), cpu, cuda or cuda:<index>"});
  f.choice("autotune", autotune,
           {{"off", Autotune::off,
             "by the heuristics of NVIDIA's libraries: the same choice in every run"},
            {"quick", Autotune::quick, "the fastest of up to 8, timed before the first step"},
            {"full", Autotune::full, "the fastest of up to 64"}},
           {.doc = "How matrix products, convolutions and attention on a GPU choose their "
                   "algorithm. Choices are kept by GPU, library and shape, and the rank that needs "
                   "one first chooses for all ranks (docs/gpu/README.md); another choice may add "
                   "in another order. The CPU has nothing to choose"});
  f.section("model", model, {.doc = "The network", .required = true});
  f.one_of("loss", loss, loss_table(), {.doc = "The function that is minimised"});
  f.section("data", data, {.doc = "Training and evaluation data", .required = true});
  f.one_of("optimizer", optimizer, optimizer_table(),
           {.doc = "The update rule", .required = true, .known_as = {"optim"}});
  f.one_of("lr_scheduler", lr_scheduler, schedule_table(),
           {.doc = "Learning rate over the run", .known_as = {"scheduler", "lr_schedule"}});
  f.section("training", training,
            {.doc = "Duration and batch size", .required = true, .known_as = {"trainer", "train"}});
  f.section("precision", precision, {.doc = "Number formats"});
  f.section("memory", memory, {.doc = "Recomputation of activations, and the memory of the run"});
  f.section("parallelism", parallelism, {.doc = "How ranks share the work"});
  f.section("checkpoint", checkpoint,
            {.doc = "When checkpoints are saved", .known_as = {"checkpointing"}});
  f.section("logging", logging, {.doc = "What is logged, and how often"});
  f.section("evaluation", evaluation,
            {.doc = "Evaluations on the eval split", .known_as = {"eval"}});
  f.section("generation", generation,
            {.doc = "Texts that a language model generates during training, for the console, "
                    "samples.jsonl of the run folder and TensorBoard",
             .known_as = {"sampling", "samples", "sample"}});
  f.section("hooks", hooks,
            {.doc = "Shell commands that rank 0 runs beside the training, with the run folder in "
                    "DLTRAIN_RUN; their output goes to hooks.txt there. One that fails is a "
                    "warning",
             .known_as = {"callbacks"}});
  f.texts("plugins", plugins,
          {.doc = "Shared objects with layers, losses and ops of your own (examples/custom-op), "
                  "which every command loads that reads this configuration",
           .scalar_ok = true,
           .is_path = true});
  f.section("sweep", sweep,
            {.doc = "The keys that `dltrain sweep` varies; other commands ignore the section, and "
                    "`train` refuses it"});
  // The resolved configuration contains the result.
  for (const auto& split : {data.train.get(), data.eval.get()}) {
    if (split != nullptr) split->expect_numbers(loss->target_kind({}) == TargetKind::numbers);
  }
}

bool Experiment::rewrite(ConfigNode& map, Diagnostics& diagnostics) {
  const ConfigNode* plugins = map.find("plugins");
  if (plugins == nullptr) return true;
  std::span<const ConfigNode> files(plugins, 1);
  if (plugins->is_list()) files = plugins->items;
  if (files.empty() && plugins->location.known() && plugins->location.source->is_override) {
    refuse_plugins();
  }
  const size_t before = diagnostics.reported();
  for (const ConfigNode& file : files) {
    if (!file.is_scalar() || is_loaded_plugin(file.text)) continue;  // the binder reports the first
    try {
      const std::string path = find_path(file.location, file.text);
      if (!std::filesystem::exists(path)) {
        diagnostics.add_cause(file.location, no_such_path(file.location, path));
      } else {
        load_plugin(path);
      }
    } catch (const Error& error) {
      diagnostics.add_cause(file.location, error.what());
    }
  }
  return diagnostics.reported() == before;
}

namespace {

// Reports keys that have no effect without an eval split. (`dltrain eval RUN DATA` reads metrics.)
void refuse_evaluation(const EvaluationConfig& evaluation, Diagnostics& diagnostics) {
  const auto refuse = [&](const char* key, bool given) {
    if (!given) return;
    diagnostics.add(evaluation, key,
                    "evaluation.{} needs an eval split (data.eval or data.eval_fraction)", key);
  };
  refuse("eval_steps", evaluation.eval_steps.has_value());
  refuse("eval_epochs", evaluation.eval_epochs.has_value());
  refuse("samples", evaluation.samples.has_value());
  refuse("predictions", evaluation.predictions.has_value());
}

}  // namespace

void Experiment::validate(Diagnostics& diagnostics) const {
  const bool cuda_index = device.starts_with("cuda:") && device.size() > 5 && device.size() < 9 &&
                          device.find_first_not_of("0123456789", 5) == std::string::npos;
  if (device != "auto" && device != "cpu" && device != "cuda" && !cuda_index) {
    diagnostics.add(*this, "device",
                    "unknown device '{}'; expected auto, cpu, cuda or cuda:<index>", device);
  }
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
    diagnostics.add(*this, "name", "'{}' cannot be the name of a folder", name);
  }
  const bool has_evaluation = data.eval != nullptr || data.eval_fraction;
  const auto& stopping = training.early_stopping;
  if (stopping && !has_evaluation) {
    diagnostics.add(stopping->location,
                    "early_stopping needs an eval split (data.eval or "
                    "data.eval_fraction)");
  } else if (stopping && !evaluation.eval_steps && !evaluation.eval_epochs) {
    diagnostics.add(stopping->location,
                    "early_stopping needs evaluations: give evaluation.eval_steps or eval_epochs");
  }
  if (parallelism.zero_stage > 0 || parallelism.ranks_of_model() > 1 || parallelism.expert > 1) {
    validate_shards(diagnostics);
  }
  if (precision.narrow_parameters()) validate_narrow_parameters(diagnostics);
  if (memory.recompute == Recompute::automatic && parallelism.pipeline > 1 &&
      parallelism.virtual_stages > 1) {
    diagnostics.add(memory, "recompute",
                    "memory.recompute auto cannot be combined with parallelism.virtual_stages {}; "
                    "take selective, blocks or full",
                    parallelism.virtual_stages);
  }
  if (optimizer && optimizer->wants_8bit()) validate_8bit_moments(diagnostics);
  if (optimizer && optimizer->projection() != nullptr) validate_galore(diagnostics);
  if (training.gradient == GradientMode::forward) validate_forward_gradient(diagnostics);
  if (model.lora) validate_lora(diagnostics);
  if (logging.gradient_noise && training.reduction == Reduction::fixed) {
    diagnostics.add(logging, "gradient_noise",
                    "gradient_noise reads gradients before they are added up, which reduction: "
                    "fixed does in another order; leave one of them out");
  }
  if (training.reduction == Reduction::fixed && parallelism.reduce_dtype != DType::f32) {
    diagnostics.add(parallelism, "reduce_dtype",
                    "training.reduction: fixed gives the same bits for every number of ranks; "
                    "rounding between ranks would change them");
  }
  if (!has_evaluation) refuse_evaluation(evaluation, diagnostics);
  if (!has_evaluation && checkpoint.metric) {
    diagnostics.add(checkpoint, "metric",
                    "the best checkpoint needs an eval split (data.eval or data.eval_fraction)");
  }
}

}  // namespace dltrain
