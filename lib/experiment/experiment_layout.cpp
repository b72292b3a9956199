// The distribution of an experiment over ranks: batches, groups, and settings that cannot be
// sharded.
#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>

#include "base/parse_number.h"
#include "experiment/experiment.h"
#include "passes/stage_cut.h"

namespace dltrain {
namespace {

// A number of ranks; 0 for a word.
int shard_number(const std::string& text) {
  return parse_number<int>(text).value_or(0);
}

// The number in a text; 0 for anything else.
double factor_in(const std::string& text) {
  const double number = parse_number<double>(text).value_or(0);
  return number > 0 && number <= 1e6 ? number : 0;
}

}  // namespace

double ParallelismConfig::buffer_factor() const {
  return factor_in(expert_buffer);
}
double ParallelismConfig::capacity_factor() const {
  return factor_in(expert_capacity);
}

std::vector<std::string> ParallelismConfig::keys_of_model() const {
  std::vector<std::string> out;
  if (tensor > 1) out.emplace_back("tensor");
  if (context > 1) out.emplace_back("context");
  if (pipeline > 1) out.emplace_back("pipeline");
  return out;
}

std::vector<std::string> ParallelismConfig::idle_keys() const {
  // No errors: a sweep over the ranks of an axis has the same keys for one rank.
  const std::tuple<const char*, bool, const char*, int64_t> keys[] = {
      {"context_method", context_method != ContextMethod::all_gather, "context", context},
      {"pipeline_stages", !chooses_stages(), "pipeline", pipeline},
      {"pipeline_schedule", pipeline_schedule != PipelineSchedule::one_forward_one_backward,
       "pipeline", pipeline},
      {"virtual_stages", virtual_stages > 1, "pipeline", pipeline},
      {"expert_buffer", expert_buffer != "worst", "expert", expert}};
  std::vector<std::string> out;
  for (const auto& [key, given, axis, ranks] : keys) {
    if (given && ranks == 1) {
      out.push_back(fmt::format("parallelism.{} has no effect with {}: 1; it needs {} of 2 or more",
                                key, axis, axis));
    }
  }
  return out;
}

void ParallelismConfig::validate(Diagnostics& diagnostics) const {
  if (layout == LayoutChoice::automatic) {
    const std::pair<const char*, bool> chosen[] = {{"data", data != -1},
                                                   {"tensor", tensor != 1},
                                                   {"sequence_parallel", sequence_parallel},
                                                   {"pipeline", pipeline != 1},
                                                   {"pipeline_stages", !chooses_stages()},
                                                   {"zero_stage", zero_stage != 0}};
    for (const auto& [key, given] : chosen) {
      if (given) diagnostics.add(*this, key, "layout: auto chooses {}; remove one of them", key);
    }
  }
  const bool word = zero_shard_size == "all" || zero_shard_size == "node";
  if (!word && shard_number(zero_shard_size) < 1) {
    diagnostics.add(*this, "zero_shard_size", "'{}' is neither all, node nor a number of ranks",
                    zero_shard_size);
  } else if (zero_shard_size != "all" && zero_stage == 0) {
    diagnostics.add(*this, "zero_shard_size",
                    "zero_shard_size {} has no effect with zero_stage 0; give zero_stage 1, 2 or 3",
                    zero_shard_size);
  }
  if (sequence_parallel && tensor == 1 && layout == LayoutChoice::given) {
    diagnostics.add(*this, "sequence_parallel",
                    "sequence_parallel has no effect with tensor: 1; give tensor: 2 or more");
  }
  if (product_pieces.value_or(1) > 1 && !sequence_parallel) {
    diagnostics.add(*this, "product_pieces",
                    "product_pieces has no effect without sequence_parallel: true");
  }
  if (expert_buffer != "worst" && buffer_factor() < 1) {
    diagnostics.add(*this, "expert_buffer", "'{}' is neither worst nor a number of at least 1",
                    expert_buffer);
  }
  if (expert_capacity != "dropless" && capacity_factor() == 0) {
    diagnostics.add(*this, "expert_capacity", "'{}' is neither dropless nor a positive number",
                    expert_capacity);
  }
  const bool interleaved = pipeline_schedule == PipelineSchedule::interleaved;
  if (interleaved && virtual_stages == 1) {
    diagnostics.add(*this, "virtual_stages",
                    "pipeline_schedule interleaved needs several stages on each rank; give "
                    "virtual_stages of 2 or more");
  } else if (!interleaved && virtual_stages > 1) {
    diagnostics.add(*this, "virtual_stages",
                    "virtual_stages {} needs pipeline_schedule: interleaved", virtual_stages);
  }
  if (pipeline == 1) return;
  const int64_t stages = pipeline * virtual_stages;
  if (stages > kMostStages) {
    diagnostics.add(*this, "virtual_stages", "{} stages on each of {} ranks are more than {}",
                    virtual_stages, pipeline, kMostStages);
  }
  if (chooses_stages()) return;
  if (std::ssize(*pipeline_stages) != stages - 1) {
    diagnostics.add(*this, "pipeline_stages",
                    "{} layer{}, but {} stages need {}: that with which the second stage begins, "
                    "and so on",
                    pipeline_stages->size(), pipeline_stages->size() == 1 ? "" : "s", stages,
                    stages - 1);
  }
}

namespace {

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

// Returns the nearest batch sizes and numbers of ranks that fit.
std::string advice(int64_t batch, int64_t ranks, const std::string& what) {
  const int64_t below = batch / ranks * ranks;
  const int64_t fewer = largest_divisor(batch, ranks);
  return fmt::format("{}{} would fit, and {} would fit {} {}{}",
                     below > 0 ? fmt::format("{} and ", below) : "", below + ranks, batch, fewer,
                     what, fewer == 1 ? "" : "s");
}

}  // namespace

// Refuses keys that need tensors which no rank stores in full.
void Experiment::validate_shards(Diagnostics& diagnostics) const {
  const bool zero = parallelism.zero_stage > 0, tensor = parallelism.tensor > 1;
  const bool context = parallelism.context > 1, experts = parallelism.expert > 1;
  const bool stages = parallelism.pipeline > 1;
  const std::string key = zero ? fmt::format("parallelism.zero_stage {}", parallelism.zero_stage)
                          : tensor  ? fmt::format("parallelism.tensor {}", parallelism.tensor)
                          : experts ? fmt::format("parallelism.expert {}", parallelism.expert)
                          : stages  ? fmt::format("parallelism.pipeline {}", parallelism.pipeline)
                                    : fmt::format("parallelism.context {}", parallelism.context);
  const auto refuse = [&](const SourceLocation& at, const std::string& why) {
    diagnostics.add(at, "{}: {}", key, why);
  };
  if (training.reduction == Reduction::fixed && (zero || tensor || context || experts)) {
    std::vector<std::string> remedies;
    for (const auto& [given, remedy] : {std::pair(zero, "zero_stage: 0"),
                                        {tensor, "tensor: 1"},
                                        {context, "context: 1"},
                                        {experts, "expert: 1"}}) {
      if (given) remedies.emplace_back(remedy);
    }
    refuse(training.location_of("reduction"),
           fmt::format("{} not added in the order of reduction: fixed, which works over data and "
                       "pipeline ranks; take {}, or reduction: fast",
                       zero      ? "sharded gradients are"
                       : tensor  ? "the products of shards are"
                       : context ? "sums over tokens are"
                                 : "the gradients of experts are",
                       fmt::join(remedies, " and ")));
  }
  if (parallelism.pipeline > 1 && loss && !loss->teachers().empty()) {
    diagnostics.add(location_of("loss"),
                    "parallelism.pipeline {}: a teacher is not divided into stages; take pipeline: "
                    "1",
                    parallelism.pipeline);
  }
  if (experts && loss && !loss->teachers().empty()) {
    diagnostics.add(location_of("loss"),
                    "parallelism.expert {}: a teacher is not divided over ranks; take expert: 1",
                    parallelism.expert);
  }
  if (training.verify_replicas && (zero || experts)) {
    refuse(training.location_of("verify_replicas"),
           zero ? "ranks with shards of their own cannot be compared; take zero_stage: 0"
                : "ranks with experts of their own cannot be compared; take expert: 1");
  }
  // Every context rank has all weights and, after the sums over ranks, all gradients.
  const bool divided = zero || tensor || experts || stages;
  if (generation && divided) {
    refuse(generation->location,
           "samples need the full weights on one rank; use `dltrain generate` on a checkpoint");
  }
  if (evaluation.predictions) {
    refuse(evaluation.location_of("predictions"),
           fmt::format("predictions need the full {} on one rank; use `dltrain predict` on a "
                       "checkpoint",
                       divided ? "weights" : "samples"));
  }
  if (logging.histogram_steps && divided) {
    refuse(logging.location_of("histogram_steps"),
           "histograms need the full weights and gradients on one rank");
  }
  if (logging.gradient_noise) {
    refuse(logging.location_of("gradient_noise"),
           divided ? "gradient_noise needs full gradients on a rank"
                   : "gradient_noise needs gradients of full samples on a rank");
  }
}

void Experiment::validate_narrow_parameters(Diagnostics& diagnostics) const {
  const std::string why = "precision.parameters: bf16: ";
  if (optimizer && !find_op(optimizer->op())->independent_elements) {
    diagnostics.add(*this, "optimizer",
                    "{}{} needs full tensors and f32 parameters; take an element-wise optimizer "
                    "(adamw, adam, sgd, adagrad, rmsprop, lion)",
                    why, optimizer->kind);
  }
  if (parallelism.zero_stage > 0) {
    diagnostics.add(parallelism, "zero_stage",
                    why + "ZeRO shards f32 master weights, which do not exist; take zero_stage: 0");
  }
  if (parallelism.tensor > 1) {
    diagnostics.add(parallelism, "tensor", why + "only f32 weights are sharded; take tensor: 1");
  }
  if (parallelism.expert > 1) {
    diagnostics.add(parallelism, "expert", why + "only f32 weights are sharded; take expert: 1");
  }
  if (training.ema) {
    diagnostics.add(training.ema->location,
                    why + "averages need f32 parameters; leave training.ema out");
  }
}

void Experiment::validate_8bit_moments(Diagnostics& diagnostics) const {
  if (!optimizer->supports_8bit()) {
    diagnostics.add(*optimizer, "moments",
                    "moments: 8bit are for adam, adamw, lion and sgd with a momentum, not for {}; "
                    "take moments: f32",
                    optimizer->kind == "sgd" ? "sgd without" : optimizer->kind);
  }
  for (const auto& [axis, ranks] :
       {std::pair("tensor", parallelism.tensor), {"expert", parallelism.expert}}) {
    if (ranks == 1) continue;
    diagnostics.add(*optimizer, "moments",
                    "parallelism.{} {}: shards would have other blocks of moments, and so other "
                    "losses, than full tensors; take moments: f32 or {}: 1",
                    axis, ranks, axis);
  }
}

void Experiment::validate_galore(Diagnostics& diagnostics) const {
  const auto refuse = [&](const std::string& why) {
    diagnostics.add(*optimizer, "galore", "galore {}", why);
  };
  if (parallelism.zero_stage == 3) {
    refuse("projects whole gradients, and zero_stage: 3 shards the parameters; take zero_stage: 2");
  }
  if (parallelism.tensor > 1) {
    refuse("projects whole gradients, and parallelism.tensor divides them; take tensor: 1");
  }
  if (training.optimizer_in_backward) {
    refuse("does not go with training.optimizer_in_backward; leave one of them out");
  }
  if (training.max_grad_value) {
    refuse("clips projected gradients only by their norm; take training.max_grad_norm");
  }
  if (precision.narrow_parameters()) {
    refuse("needs f32 parameters; leave precision.parameters out");
  }
}

void Experiment::validate_forward_gradient(Diagnostics& diagnostics) const {
  const auto refuse = [&](const std::string& why) {
    diagnostics.add(training, "gradient", "gradient: forward {}", why);
  };
  for (const auto& [axis, ranks] : {std::pair("tensor", parallelism.tensor),
                                    {"pipeline", parallelism.pipeline},
                                    {"context", parallelism.context},
                                    {"expert", parallelism.expert}}) {
    if (ranks > 1) {
      refuse(fmt::format("goes with data parallelism and ZeRO only; take parallelism.{}: 1", axis));
    }
  }
  if (memory.recompute != Recompute::none) {
    refuse("keeps no activations that memory.recompute could compute again; leave it out");
  }
  if (precision.fp8) refuse("does not go with precision.fp8");
  if (model.pad_vocab_to) refuse("does not go with model.pad_vocab_to");
}

void Experiment::validate_lora(Diagnostics& diagnostics) const {
  const LoraConfig& lora = *model.lora;
  const auto refuse = [&](const char* key, const std::string& why) {
    diagnostics.add(lora, key, why);
  };
  const bool cut = parallelism.tensor > 1 || parallelism.expert > 1;
  if (lora.base == LoraBase::bf16) {
    if (precision.compute != DType::bf16)
      refuse("base", "base: bf16 needs precision.compute: bf16");
    if (parallelism.zero_stage > 0) {
      refuse("base",
             "base: bf16 does not go with ZeRO, which shards f32 values; take zero_stage: 0");
    }
    if (cut) {
      refuse("base",
             "base: bf16 does not go with tensor or expert parallelism, which shards f32 values");
    }
  }
  if (lora.saves_base()) return;
  const bool coded = lora.codes().format != WeightFormat::wide;
  const char* key = coded ? "base" : "save";
  const std::string what = coded ? "base: int8 and nf4" : "save: adapters";
  if (parallelism.zero_stage > 2) {
    refuse(key, what + " keep the whole base on each rank, which zero_stage: 3 shards; take 2");
  }
  if (cut) {
    refuse(key, what + " do not go with tensor or expert parallelism, which shards the base");
  }
  if (model.final_bias_from_data) {
    refuse(key,
           what + " leave a base that model.final_bias_from_data has changed out of checkpoints");
  }
  if (lora.variant == LoraVariant::dora && parallelism.pipeline > 1) {
    refuse(key, what + " do not go with dora in a pipeline");
  }
}

void check_division(const TrainingConfig& t, int64_t global_batch, int64_t ranks,
                    const std::string& what, Diagnostics& diagnostics) {
  const int64_t micro = t.given_micro_batch().value_or(1), samples = global_batch / ranks;
  const int64_t steps = t.gradient_accumulation_steps.value_or(1);
  const auto refuse = [&](const char* key, int64_t value) {
    const std::string share = ranks == 1 ? "global_batch_size"
                                         : fmt::format("a rank's share of the batch ({} / {} {}s)",
                                                       global_batch, ranks, what);
    const int64_t above = (samples / value + 1) * value * ranks, below = above - value * ranks;
    diagnostics.add(
        t, key, "{0} {1} does not divide {2} {3}; {0} {4} would fit, or global_batch_size {5}{6}",
        key, value, share, samples, largest_divisor(samples, value),
        below > 0 ? fmt::format("{} or ", below) : "", above);
  };
  if (samples % micro != 0) {
    refuse("micro_batch_size", micro);
  } else if (samples % steps != 0) {
    refuse("gradient_accumulation_steps", steps);
  }
}

namespace {

// `ranks`: those with other samples, which `what` names.
BatchLayout batch_layout(const TrainingConfig& t, int ranks, const std::string& what) {
  const int64_t r = ranks;
  if (!t.global_batch_size && r > 1) {
    fail_at(t, "micro_batch_size",
            "micro_batch_size alone leaves the global batch of {} {}s open; give "
            "global_batch_size (here {} for the same micro-batches)",
            r, what,
            t.given_micro_batch().value_or(1) * t.gradient_accumulation_steps.value_or(1) * r);
  }
  BatchLayout out;
  out.global_batch = t.global_batch_size.value_or(t.given_micro_batch().value_or(1) *
                                                  t.gradient_accumulation_steps.value_or(1));
  if (out.global_batch % r != 0) {
    fail_at(t, "global_batch_size", "a global batch of {} cannot be shared evenly by {} {}s; {}",
            out.global_batch, r, what, advice(out.global_batch, r, what));
  }
  const int64_t share = out.global_batch / r;
  out.micro_batch =
      t.given_micro_batch().value_or(share / t.gradient_accumulation_steps.value_or(1));
  Diagnostics diagnostics;
  check_division(t, out.global_batch, r, what, diagnostics);
  diagnostics.throw_if_any();
  out.micro_steps = share / out.micro_batch;
  if (t.gradient_accumulation_steps && out.micro_steps != *t.gradient_accumulation_steps) {
    fail_at(
        t, "gradient_accumulation_steps",
        "{} contradicts global_batch_size {} and micro_batch_size {}, which mean {} micro-steps",
        *t.gradient_accumulation_steps, out.global_batch, out.micro_batch, out.micro_steps);
  }
  return out;
}

}  // namespace

BatchLayout check_ranks(const Experiment& experiment, int all_ranks) {
  const ParallelismConfig& parallelism = experiment.parallelism;
  if (parallelism.layout == LayoutChoice::automatic && all_ranks > 1) {
    fail_at(parallelism, "layout",
            "auto is for train, profile and plan; give a layout (dltrain plan --search prints "
            "the fastest)");
  }
  const int64_t parts = parallelism.ranks_of_model();
  const std::vector<std::string> keys = parallelism.keys_of_model();
  if (all_ranks % parts != 0) {
    fail_at(parallelism, keys.front(),
            "{} rank{} cannot be divided into groups of {} for {} parallelism; start a multiple of "
            "{} ranks (--nproc-per-node)",
            all_ranks, all_ranks == 1 ? "" : "s", parts, fmt::join(keys, " and "), parts);
  }
  const int ranks = all_ranks / static_cast<int>(parts);  // data-parallel ones
  const int64_t wanted = experiment.parallelism.data;
  if (wanted == 0 || (wanted > 0 && wanted != ranks)) {
    fail_at(parallelism, "data",
            "{} data-parallel rank{} asked for{}, {} started (−1: as many as there are)", wanted,
            wanted == 1 ? "" : "s",
            parts > 1 ? fmt::format(", which means {} ranks with {} parallelism", wanted * parts,
                                    fmt::join(keys, " and "))
                      : "",
            all_ranks);
  }
  if (const int64_t sharing = ranks * parallelism.context; sharing % parallelism.expert != 0) {
    const int64_t groups = parts / parallelism.context;
    fail_at(parallelism, "expert",
            "{} data-parallel rank{}{} cannot be divided into groups of {} for the experts; start "
            "a multiple of {} ranks, or take an expert that divides {}",
            ranks, ranks == 1 ? "" : "s",
            parallelism.context > 1 ? fmt::format(" times context {}", parallelism.context) : "",
            parallelism.expert, std::lcm(parts, groups * parallelism.expert), sharing);
  }
  // With other axes than `data` it matters which ranks are meant.
  const BatchLayout out =
      batch_layout(experiment.training, ranks, parts > 1 ? "data-parallel rank" : "rank");
  if (experiment.training.reduction == Reduction::fixed && ranks > 1 &&
      !std::has_single_bit(static_cast<uint64_t>(out.micro_steps))) {
    // Suggests as many samples per rank in 2^k micro-batches, or other global batches.
    const int64_t share = out.micro_batch * out.micro_steps;
    int64_t steps = 1;
    while (share % (2 * steps) == 0 && 2 * steps <= out.micro_steps) steps *= 2;
    const auto least = std::bit_floor(static_cast<uint64_t>(out.micro_steps));
    const int64_t smaller = static_cast<int64_t>(least) * out.micro_batch * ranks;
    fail_at(experiment.training, "reduction",
            "the fixed tree over {} micro-batches has no branch for the {} of one rank; on several "
            "ranks reduction: fixed needs a power of two of micro-steps: a micro_batch_size of {}, "
            "or a global_batch_size of {} or {}",
            out.micro_batches(), out.micro_steps, share / steps, smaller, 2 * smaller);
  }
  return out;
}

const std::vector<std::string>& one_rank_overrides() {
  static const std::vector<std::string> overrides{"parallelism.layout=given",
                                                  "parallelism.data=1",
                                                  "parallelism.tensor=1",
                                                  "parallelism.context=1",
                                                  "parallelism.context_method=all_gather",
                                                  "parallelism.pipeline=1",
                                                  "parallelism.pipeline_schedule=1f1b",
                                                  "parallelism.virtual_stages=1",
                                                  "parallelism.pipeline_stages=auto",
                                                  "parallelism.expert=1",
                                                  "parallelism.expert_buffer=worst",
                                                  "parallelism.sequence_parallel=false",
                                                  "parallelism.product_pieces=null",
                                                  "logging.gradient_noise=false"};
  return overrides;
}

void accumulate_on_one_rank(TrainingConfig& training) {
  std::optional<int64_t>& given = training.gradient_accumulation_steps;
  if (!given || !training.global_batch_size || !training.given_micro_batch()) return;
  const int64_t micro_batches = *training.global_batch_size / *training.given_micro_batch();
  if (micro_batches % *given == 0) given = micro_batches;
}

Mesh rank_mesh(const Experiment& experiment, int all_ranks, int ranks_per_node) {
  const ParallelismConfig& parallelism = experiment.parallelism;
  const std::string& text = parallelism.zero_shard_size;
  const int tensor = static_cast<int>(parallelism.tensor);
  const int context = static_cast<int>(parallelism.context);
  const int ranks = all_ranks / static_cast<int>(parallelism.ranks_of_model());
  // Experts are divided along the context first, whose ranks are neighbours.
  const int near = std::gcd(static_cast<int>(parallelism.expert), context);
  const int expert = static_cast<int>(parallelism.expert) / near;
  int shard = ranks;
  if (text == "node" && ranks_per_node > 0) {
    shard = std::clamp(ranks_per_node / (tensor * context), 1, ranks);
  }
  if (const int number = shard_number(text); number > 0) shard = std::min(ranks, number);
  if (ranks % shard != 0) {
    fail_at(parallelism, "zero_shard_size", "{} ranks cannot be divided into groups of {}{}", ranks,
            shard, text == "node" ? ", the ranks of this node" : "");
  }
  if (shard % expert != 0) {
    fail_at(parallelism, "zero_shard_size",
            "groups of {} ranks cannot be divided into groups of {} for the experts; take a "
            "multiple of {}",
            shard, expert, expert);
  }
  return Mesh({{mesh_axes::kPipeline, static_cast<int>(parallelism.pipeline)},
               {mesh_axes::kReplica, ranks / shard},
               {mesh_axes::kShard, shard / expert},
               {"expert", expert},
               {"context", context / near},
               {"context_expert", near},
               {mesh_axes::kTensor, tensor}});
}

}  // namespace dltrain
