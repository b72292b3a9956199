// Settings that need less memory, planned, and the choice of the micro-batch.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "config/diagnostics.h"
#include "run/memory_fit.h"

namespace dltrain {
namespace {

constexpr uint64_t kRoomToPlan = uint64_t{64} << 20;  // bytes, without which nothing is planned
// The memory that each rank's process takes between the choice of the micro-batch and the run.
constexpr uint64_t kRoomToStart = uint64_t{4} << 20;
constexpr int kMostRanks = 64;  // of the remedy that shards

// The sections that are changed and restored.
using Sections = std::tuple<TrainingConfig, PrecisionConfig, MemoryConfig, ParallelismConfig,
                            CheckpointConfig, std::optional<LoraConfig>, MomentFormat>;
auto sections_of(Experiment& e) {
  return std::tie(e.training, e.precision, e.memory, e.parallelism, e.checkpoint, e.model.lora,
                  e.optimizer->moment_format);
}

// Restores the sections at the end of a scope.
struct KeptSections {
  Experiment& experiment;
  Sections sections = sections_of(experiment);
  ~KeptSections() { sections_of(experiment) = sections; }
};

// Returns the last of the sizes that fits; nothing if the first does not. Those that fit come
// first.
std::optional<int64_t> last_that_fits(std::span<const int64_t> sizes,
                                      const std::function<bool(int64_t)>& fits) {
  const auto end = std::partition_point(sizes.begin(), sizes.end(), fits);
  return end == sizes.begin() ? std::nullopt : std::optional(*(end - 1));
}

using Change = std::function<void(Experiment&)>;

// A change of the configuration that needs less memory.
struct Remedy {
  std::string settings;  // "memory.recompute=blocks"
  Change change;
  MemoryFit fit = {};
  double flops = 1;        // of a step, as a multiple
  std::string where = {};  // " on 8 GPUs"; empty: on the same ranks
};

class Remedies {
 public:
  Remedies(const Session& session, const MemoryFit& now, const std::vector<MemoryLimit>& limits)
      : session_(session), experiment_(*session.experiment), now_(now), limits_(limits) {}

  std::vector<Remedy> find() {
    // Changes that keep the results to the bit, or but for the order of sums.
    std::vector<const Remedy*> parts;
    const Remedy* least = nullptr;
    found_.reserve(16);  // pointers into it stay
    if (experiment_.memory.recompute != Recompute::automatic) {
      add({"memory.recompute=auto",
           [](Experiment& e) { e.memory.recompute = Recompute::automatic; }});
    }
    for (const auto& [name, kind] : {std::pair("selective", Recompute::selective),
                                     {"blocks", Recompute::blocks},
                                     {"full", Recompute::full}}) {
      if (experiment_.memory.recompute == kind) continue;
      const Remedy* r = add({fmt::format("memory.recompute={}", name),
                             [kind = kind](Experiment& e) { e.memory.recompute = kind; }});
      if (r != nullptr && (least == nullptr || r->fit.needs < least->fit.needs)) least = r;
    }
    const bool shards = session_.options.ranks.world > 1 && experiment_.parallelism.zero_stage < 3;
    const Remedy* zero =
        shards
            ? add({"parallelism.zero_stage=3", [](Experiment& e) { e.parallelism.zero_stage = 3; }})
            : nullptr;
    for (const Remedy* r :
         {least, zero, smaller_micro_batch(),
          add({"checkpoint.async=false", [](Experiment& e) { e.checkpoint.async = false; }})}) {
      if (r != nullptr) parts.push_back(r);
    }
    if (experiment_.precision.compute == DType::f32) {
      add({"precision.compute=bf16", [](Experiment& e) { e.precision.compute = DType::bf16; }});
    }
    if (experiment_.precision.compute != DType::f16) {
      add({"precision='{compute: bf16, parameters: bf16, residual: bf16}'", [](Experiment& e) {
             PrecisionConfig& p = e.precision;
             p.compute = p.parameters = p.residual = DType::bf16;
           }});
    }
    if (!experiment_.training.optimizer_in_backward) {
      const bool clips = experiment_.training.max_grad_norm.has_value();
      add({std::string("training.optimizer_in_backward=true") +
               (clips ? " training.clip_norm=previous" : ""),
           [clips](Experiment& e) {
             e.training.optimizer_in_backward = true;
             if (clips) e.training.clip_norm = ClipNorm::previous;
           }});
    }
    add({"optimizer.moments=8bit",
         [](Experiment& e) { e.optimizer->moment_format = MomentFormat::eight_bit; }});
    // Adapters suit a model that is trained already.
    if (experiment_.model.init_from && !experiment_.model.lora) {
      add({"model.lora=16", [](Experiment& e) { e.model.lora.emplace(); }});
      add({"model.lora='{rank: 16, base: nf4}'",
           [](Experiment& e) { e.model.lora.emplace().base = LoraBase::nf4; }});
    } else if (const auto& lora = experiment_.model.lora;
               lora && lora->variant != LoraVariant::dora && lora->save != LoraSave::all) {
      add({"model.lora.base=nf4", [](Experiment& e) { e.model.lora->base = LoraBase::nf4; }});
    }
    if (std::ranges::any_of(found_, [](const Remedy& r) { return r.fit.fits(); })) return found_;
    Remedy together{"", [](Experiment&) {}};
    for (const Remedy* part : parts) {
      together.settings += (together.settings.empty() ? "" : " ") + part->settings;
      together.change = [before = together.change, change = part->change](Experiment& e) {
        before(e);
        change(e);
      };
    }
    if (parts.size() > 1) add(together);
    if (!shard({"", [](Experiment&) {}}) && !parts.empty()) shard(together);
    return found_;
  }

 private:
  // Plans a change. `world`: on so many ranks, each on its own machine; 0: on the same ranks.
  // Returns false where the configuration or the device refuses it.
  bool plan(Remedy& remedy, int world = 0) const {
    // Libraries may crash without memory for their kernels.
    for (const MemoryLimit& limit : memory_limits()) {
      if (limit.has < limit.used + kRoomToPlan) return false;
    }
    SessionOptions options = session_.options;
    if (world > 0) options.ranks.ranks_per_node = 1;
    const KeptSections kept{experiment_};
    remedy.change(experiment_);
    try {
      Diagnostics diagnostics;
      experiment_.precision.validate(diagnostics);
      experiment_.validate(diagnostics);
      if (!diagnostics.empty()) return false;
      const Session session = open_planned_rank(
          experiment_, options, world > 0 ? world : options.ranks.world, /*rank=*/0);
      remedy.fit = memory_fit(session, limits_);
      remedy.flops = session.executor->report().flops_per_step / flops_;
    } catch (const Error&) {  // as a configuration it would be refused too
      return false;
    }
    return true;
  }

  // Plans a change and adds it if it saves at least one percent.
  const Remedy* add(Remedy remedy) {
    if (!plan(remedy) ||
        static_cast<double>(remedy.fit.needs) > 0.99 * static_cast<double>(now_.needs)) {
      return nullptr;
    }
    return &found_.emplace_back(std::move(remedy));
  }

  // The global batch stays the same.
  Remedy micro_batch(int64_t size) const {
    const int64_t steps = session_.batch.micro_batch * session_.batch.micro_steps / size;
    const bool given = experiment_.training.gradient_accumulation_steps.has_value();
    return {fmt::format("training.micro_batch_size={}", size) +
                (given ? fmt::format(" training.gradient_accumulation_steps={}", steps) : ""),
            [=](Experiment& e) {
              e.training.micro_batch_size = size;
              if (given) e.training.gradient_accumulation_steps = steps;
            }};
  }

  // The largest that fits, else the smallest.
  const Remedy* smaller_micro_batch() {
    auto sizes = possible_micro_batches(experiment_, session_.options.ranks.world);
    std::erase_if(sizes, [&](int64_t size) { return size >= session_.batch.micro_batch; });
    if (sizes.empty() || !micro_batch_matters(session_).empty()) return nullptr;
    const auto size = last_that_fits(sizes, [&](int64_t s) {
      Remedy r = micro_batch(s);
      return plan(r) && r.fit.fits();
    });
    return add(micro_batch(size.value_or(sizes.front())));
  }

  // Adds a change with ZeRO on the fewest GPUs or machines that suffice.
  bool shard(const Remedy& with) {
    if (session_.options.ranks.world > 1) return false;
    const bool gpu = !session_.executor->device().properties().on_host;
    std::vector<int64_t> worlds = divisors(session_.batch.global_batch, kMostRanks);
    worlds.erase(worlds.begin());  // one rank
    Remedy remedy{with.settings + (with.settings.empty() ? "" : " ") + "parallelism.zero_stage=3",
                  [&](Experiment& e) {
                    with.change(e);
                    e.parallelism.zero_stage = 3;
                  }};
    const auto lacks = [&](int64_t world) {
      return !plan(remedy, static_cast<int>(world)) || !remedy.fit.fits();
    };
    const auto least = std::ranges::partition_point(worlds, lacks);
    if (least == worlds.end() || lacks(*least)) return false;
    remedy.where = fmt::format(" on {} {}", *least, gpu ? "GPUs" : "machines, a rank on each");
    remedy.flops = 1;  // a rank has a part of the samples
    found_.push_back(remedy);
    return true;
  }

  const Session& session_;
  Experiment& experiment_;
  const MemoryFit& now_;
  const std::vector<MemoryLimit>& limits_;
  double flops_ = session_.executor->report().flops_per_step;
  std::vector<Remedy> found_;
};

}  // namespace

std::string memory_verdict(const Session& session, const MemoryFit& fit,
                           const std::vector<MemoryLimit>& limits) {
  std::string out = fit.text();
  if (fit.fits()) return out;
  const std::vector<Remedy> remedies = Remedies(session, fit, limits).find();
  for (const Remedy& r : remedies) {
    const std::string flop =
        std::abs(r.flops - 1) >= 0.005 ? fmt::format(", {:+.0f} % FLOP", 100 * (r.flops - 1)) : "";
    out += fmt::format("\n  {}{} → {}{}{}", r.settings, r.where, bytes_text(r.fit.needs), flop,
                       r.fit.fits() ? ", fits" : "");
  }
  if (std::ranges::none_of(remedies, [](const Remedy& r) { return r.fit.fits(); })) {
    out += fmt::format("\n  {} suffices",
                       remedies.empty() ? "no setting that was planned" : "none of these");
  }
  return out;
}

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    if (d <= most) out.push_back(d);
    if (d * d < n && n / d <= most) out.push_back(n / d);
  }
  std::ranges::sort(out);
  return out;
}

std::vector<int64_t> possible_micro_batches(const Experiment& experiment, int world) {
  const int64_t ranks = world / experiment.parallelism.ranks_of_model();
  const int64_t share = check_ranks(experiment, world).global_batch / ranks;
  std::vector<int64_t> out = divisors(share, share);
  // The tree of a fixed reduction over several ranks (check_ranks).
  if (experiment.training.reduction == Reduction::fixed && ranks > 1) {
    std::erase_if(out, [&](int64_t size) {
      return !std::has_single_bit(static_cast<uint64_t>(share / size));
    });
  }
  // logging.gradient_noise needs two micro-batches, optimizer_in_backward one.
  if (experiment.logging.gradient_noise && ranks == 1 && share > 1) out.pop_back();
  if (experiment.training.optimizer_in_backward) out = {share};
  // With fewer micro-batches than stages of a pipeline ranks wait most of the time.
  const auto waits = [&](int64_t size) { return share / size < experiment.parallelism.pipeline; };
  if (!std::ranges::all_of(out, waits)) std::erase_if(out, waits);
  return out;
}

std::string micro_batch_matters(const Session& session) {
  const StepGraph& graph = session.executor->training();
  for (const Node& node : graph.graph.nodes) {
    if (!node.op->mixes_samples) continue;
    return fmt::format("{} ({}) takes statistics of a micro-batch", node.layer, node.op->name);
  }
  for (const StepMetric& metric : graph.metrics) {
    if (!metric.router) continue;
    if (metric.router->balance_loss != 0 || metric.router->router_z_loss != 0) {
      return "the losses of the routers of experts are those of a micro-batch";
    }
    if (session.experiment->parallelism.capacity_factor() > 0) {
      return "parallelism.expert_capacity counts the tokens of a micro-batch";
    }
  }
  return "";
}

RecomputeChoice choose_recompute(Experiment& experiment, SessionOptions& options) {
  RecomputeChoice fastest, least;
  double fastest_seconds = std::numeric_limits<double>::infinity();
  uint64_t least_needs = std::numeric_limits<uint64_t>::max();
  const auto fits = [&](RecomputeChoice choice) {
    options.recompute_choice = choice;
    const Session session = open_planned_rank(experiment, options, options.ranks.world, 0);
    options.data = session.options.data;
    MemoryFit fit = memory_fit(session, limits_of(session));
    fit.needs += static_cast<uint64_t>(std::max(1, options.ranks.on_this_node())) * kRoomToStart;
    const double seconds = session.executor->training().recomputed_seconds;
    if (fit.fits() && seconds < fastest_seconds) fastest = choice, fastest_seconds = seconds;
    if (fit.needs < least_needs) least = choice, least_needs = fit.needs;
    return fit.fits();
  };
  if (fits({Recompute::none})) return fastest;
  // The planned memory follows that of the chain in general, but not in every step.
  double low = 0, high = 1;
  if (fits({Recompute::automatic, low})) {
    for (int i = 0; i < 7; ++i) {
      const double middle = (low + high) / 2;
      (fits({Recompute::automatic, middle}) ? low : high) = middle;
    }
  }
  for (const Recompute mode : {Recompute::selective, Recompute::blocks, Recompute::full}) {
    try {
      fits({mode});
    } catch (const Error&) {
      // There are no blocks.
    }
  }
  return fastest_seconds < std::numeric_limits<double>::infinity() ? fastest : least;
}

int64_t choose_micro_batch(Experiment& experiment, SessionOptions& options) {
  const KeptSections kept{experiment};
  // The largest that needs no recomputation; where none does, the smallest with it.
  if (experiment.memory.recompute == Recompute::automatic) {
    experiment.memory.recompute = Recompute::none;
  }
  std::vector<int64_t> sizes = possible_micro_batches(experiment, options.ranks.world);
  std::vector<MemoryLimit> limits;
  int64_t least = 0;
  MemoryFit of_least;
  const auto fits = [&](int64_t size) {
    experiment.training.micro_batch_size = size;
    const Session session = open_planned_rank(experiment, options, options.ranks.world, 0);
    options.data = session.options.data;
    if (limits.empty()) {
      if (const std::string why = micro_batch_matters(session); !why.empty()) {
        fail_at(experiment.training, "micro_batch_size",
                "auto: results would depend on the memory of the machine, because {}; give a "
                "number (`dltrain fit` prints those that fit)",
                why);
      }
      limits = limits_of(session);
    }
    MemoryFit fit = memory_fit(session, limits);
    fit.needs += static_cast<uint64_t>(std::max(1, options.ranks.on_this_node())) * kRoomToStart;
    if (least == 0 || fit.needs < of_least.needs) {
      least = size;
      of_least = fit;
    }
    return fit.fits();
  };
  // The whole share is tried first: it needs no sums of gradients over micro-batches.
  if (fits(sizes.back())) return sizes.back();
  sizes.pop_back();
  const auto size = last_that_fits(sizes, fits);
  return size.value_or(least);
}

}  // namespace dltrain
