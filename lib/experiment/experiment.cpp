#include "experiment/experiment.h"

#include <filesystem>
#include <span>

#include "base/memory.h"
#include "config/paths.h"
#include "nn/plugin.h"

namespace dltrain {

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
  if (files.empty() && plugins->location.is_override()) {
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
