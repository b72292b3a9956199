// How an experiment lies on ranks: batches, groups, and what cannot be cut.
#include <algorithm>
#include <bit>
#include <charconv>

#include "train/experiment.h"

namespace dltrain {
namespace {

// A number of ranks; 0 for a word.
int shard_number(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

void ParallelismConfig::validate(Problems& problems) const {
  const bool word = zero_shard_size == "all" || zero_shard_size == "node";
  if (!word && shard_number(zero_shard_size) < 1) {
    problems.add(*this, "zero_shard_size",
                 fmt::format("'{}' is neither all, node nor a number of ranks", zero_shard_size));
  } else if (zero_shard_size != "all" && zero_stage == 0) {
    problems.add(
        *this, "zero_shard_size",
        fmt::format("zero_shard_size {} has no effect with zero_stage 0; give zero_stage 1, 2 "
                    "or 3",
                    zero_shard_size));
  }
}

namespace {

// Batches and numbers of ranks next to these that would do.
std::string advice(int64_t batch, int64_t ranks) {
  const int64_t below = batch / ranks * ranks;
  int64_t fewer = std::min(ranks, batch);
  while (batch % fewer != 0) --fewer;
  return fmt::format("{}{} would fit, and {} would fit {} rank{}",
                     below > 0 ? fmt::format("{} and ", below) : "", below + ranks, batch, fewer,
                     fewer == 1 ? "" : "s");
}

}  // namespace

void Experiment::validate_zero(Problems& problems) const {
  const auto refuse = [&](const Located& owner, const char* key, const std::string& why) {
    problems.add(owner, key,
                 fmt::format("parallelism.zero_stage {}: {}", parallelism.zero_stage, why));
  };
  if (optimizer && !find_op(optimizer->op())->independent_elements) {
    refuse(*this, "optimizer",
           fmt::format("{} needs whole tensors, of which a rank holds shards; take an "
                       "element-wise optimizer (adamw, adam, sgd, adagrad, rmsprop, lion), or "
                       "zero_stage: 0",
                       optimizer->kind));
  }
  if (training.reduction == Reduction::fixed) {
    refuse(training, "reduction",
           "sharded gradients cannot be added in the order of reduction: fixed");
  }
  if (training.ema) {
    problems.add(training.ema->place,
                 fmt::format("parallelism.zero_stage {}: averaged weights are not sharded; leave "
                             "training.ema out, or take zero_stage: 0",
                             parallelism.zero_stage));
  }
  if (generation) {
    problems.add(generation->place,
                 fmt::format("parallelism.zero_stage {}: samples need whole weights on one rank; "
                             "`dltrain generate` makes them from a checkpoint",
                             parallelism.zero_stage));
  }
  if (evaluation.predictions) {
    refuse(evaluation, "predictions",
           "predictions need whole weights on one rank; `dltrain predict` makes them from a "
           "checkpoint");
  }
  if (logging.histogram_steps) {
    refuse(logging, "histogram_steps", "histograms need whole weights and gradients on one rank");
  }
}

void Experiment::validate_narrow_parameters(Problems& problems) const {
  const std::string why = "precision.parameters: bf16: ";
  if (optimizer && !find_op(optimizer->op())->independent_elements) {
    problems.add(*this, "optimizer",
                 fmt::format("{}{} needs whole tensors and f32 parameters; take an element-wise "
                             "optimizer (adamw, adam, sgd, adagrad, rmsprop, lion)",
                             why, optimizer->kind));
  }
  if (parallelism.zero_stage > 0) {
    problems.add(parallelism, "zero_stage",
                 why +
                     "ZeRO shards f32 master weights, of which there are none; take zero_stage: "
                     "0");
  }
  if (training.ema) {
    problems.add(training.ema->place, why + "averages need f32 parameters; leave training.ema out");
  }
}

namespace {

std::string share_name(int64_t global_batch, int64_t ranks) {
  if (ranks == 1) return "global_batch_size";
  return fmt::format("a rank's share of the batch ({} / {} ranks)", global_batch, ranks);
}

}  // namespace

void check_division(const TrainingConfig& t, int64_t samples, const std::string& share,
                    Problems& problems) {
  const int64_t micro = t.micro_batch_size.value_or(1);
  const int64_t steps = t.gradient_accumulation_steps.value_or(1);
  const auto refuse = [&](const char* key, int64_t value) {
    const int64_t below = samples / value * value;
    problems.add(
        t, key,
        fmt::format("{} {} does not divide {} {}; {}{} would fit", key, value, share, samples,
                    below > 0 ? fmt::format("{} or ", below) : "", below + value));
  };
  if (samples % micro != 0) {
    refuse("micro_batch_size", micro);
  } else if (samples % steps != 0) {
    refuse("gradient_accumulation_steps", steps);
  }
}

BatchLayout batch_layout(const TrainingConfig& t, int ranks) {
  Problems problems;
  const int64_t r = ranks;
  if (!t.global_batch_size && r > 1) {
    problems.add(
        t, "micro_batch_size",
        fmt::format("micro_batch_size alone leaves the global batch of {} ranks open; give "
                    "global_batch_size (here {} for the same micro-batches)",
                    r, *t.micro_batch_size * t.gradient_accumulation_steps.value_or(1) * r));
    problems.throw_if_any();
  }
  BatchLayout out;
  out.global_batch = t.global_batch_size.value_or(t.micro_batch_size.value_or(1) *
                                                  t.gradient_accumulation_steps.value_or(1));
  if (out.global_batch % r != 0) {
    problems.add(t, "global_batch_size",
                 fmt::format("a global batch of {} cannot be shared evenly by {} ranks; {}",
                             out.global_batch, r, advice(out.global_batch, r)));
  }
  problems.throw_if_any();
  const int64_t share = out.global_batch / r;
  out.micro_batch = t.micro_batch_size.value_or(share / t.gradient_accumulation_steps.value_or(1));
  check_division(t, share, share_name(out.global_batch, r), problems);
  problems.throw_if_any();
  if (t.gradient_accumulation_steps && share / out.micro_batch != *t.gradient_accumulation_steps) {
    problems.add(t, "gradient_accumulation_steps",
                 fmt::format("{} contradicts global_batch_size {} and micro_batch_size {}, which "
                             "mean {} micro-steps",
                             *t.gradient_accumulation_steps, out.global_batch, out.micro_batch,
                             share / out.micro_batch));
  }
  problems.throw_if_any();
  out.micro_steps = share / out.micro_batch;
  return out;
}

BatchLayout check_ranks(const Experiment& experiment, int ranks) {
  const int64_t wanted = experiment.parallelism.data;
  if (wanted == 0 || (wanted > 0 && wanted != ranks)) {
    Problems problems;
    problems.add(experiment.parallelism, "data",
                 fmt::format("{} data-parallel ranks asked for, {} started (−1: as many as there "
                             "are)",
                             wanted, ranks));
    problems.throw_if_any();
  }
  const BatchLayout out = batch_layout(experiment.training, ranks);
  if (experiment.training.reduction == Reduction::fixed && ranks > 1 &&
      !std::has_single_bit(static_cast<uint64_t>(out.micro_steps))) {
    // What would do: as many samples a rank in 2^k micro-batches, or other global batches.
    const int64_t share = out.micro_batch * out.micro_steps;
    int64_t steps = 1;
    while (share % (2 * steps) == 0 && 2 * steps <= out.micro_steps) steps *= 2;
    const auto least = std::bit_floor(static_cast<uint64_t>(out.micro_steps));
    const int64_t smaller = static_cast<int64_t>(least) * out.micro_batch * ranks;
    Problems problems;
    problems.add(
        experiment.training, "reduction",
        fmt::format("the fixed tree over {} micro-batches has no branch for the {} of one "
                    "rank; on several ranks reduction: fixed needs a power of two of "
                    "micro-steps: a micro_batch_size of {}, or a global_batch_size of {} or {}",
                    out.micro_batches(), out.micro_steps, share / steps, smaller, 2 * smaller));
    problems.throw_if_any();
  }
  return out;
}

Mesh rank_mesh(const Experiment& experiment, int ranks, int ranks_per_node) {
  const ParallelismConfig& parallelism = experiment.parallelism;
  const std::string& text = parallelism.zero_shard_size;
  Problems problems;
  int shard = ranks;
  if (text == "node" && ranks_per_node > 0) shard = std::min(ranks, ranks_per_node);
  if (const int number = shard_number(text); number > 0) shard = std::min(ranks, number);
  if (ranks % shard != 0) {
    problems.add(parallelism, "zero_shard_size",
                 fmt::format("{} ranks cannot be divided into groups of {}{}", ranks, shard,
                             text == "node" ? ", the ranks of this node" : ""));
  }
  problems.throw_if_any();
  return Mesh({{mesh_axes::kReplica, ranks / shard}, {mesh_axes::kShard, shard}});
}

}  // namespace dltrain
