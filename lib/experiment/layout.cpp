#include "experiment/layout.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace dltrain {
namespace {

// Returns the nearest batch sizes and numbers of ranks that fit.
std::string advice(int64_t batch, int64_t ranks, const std::string& what) {
  const int64_t below = batch / ranks * ranks;
  const int64_t fewer = largest_divisor(batch, ranks);
  return fmt::format("{}{} would fit, and {} would fit {} {}{}",
                     below > 0 ? fmt::format("{} and ", below) : "", below + ranks, batch, fewer,
                     what, fewer == 1 ? "" : "s");
}

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
  if (const int number = parallelism.shard_number(); number > 0) shard = std::min(ranks, number);
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
