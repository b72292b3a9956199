// dltrain fit: the micro-batches of a global batch, the memory and the estimated or (with
// --measure) measured speed of each, and the best that fits.
#include <algorithm>
#include <cstdio>

#include "dltrain/commands.h"
#include "dltrain/gpu_estimate.h"
#include "run/memory_fit.h"
#include "run/trainer.h"

namespace dltrain {
namespace {

// A micro-batch is as good as the fastest if a step takes at most this much longer.
constexpr double kAsGood = 1.02;

struct FitOptions {
  ConfigOptions config;
  std::string gpu, memory;
  MachineRates rates = {};
  int world = 0, ranks_per_node = 0;  // 0: as in the configuration, and all on one node
  bool measure = false;
};

struct FitRow {
  BatchLayout batch;
  size_t arena = 0;
  MemoryFit fit;
  double seconds = 0;  // of a step, estimated or measured; 0: neither
};

void print_table(const std::vector<FitRow>& rows, bool estimated) {
  fmt::print("  {:>11}  {:>11}  {:>10}  {:>10}", "micro-batch", "micro-steps", "arena", "needs");
  if (estimated) fmt::print("  {:>9}  {:>10}", "step (ms)", "samples/s");
  fmt::print("\n");
  for (const FitRow& row : rows) {
    fmt::print("  {:>11}  {:>11}  {:>10}  {:>10}", row.batch.micro_batch, row.batch.micro_steps,
               bytes_text(row.arena), bytes_text(row.fit.needs));
    if (!row.fit.fits()) {
      fmt::print("  does not fit");
    } else if (estimated) {
      fmt::print("  {:>9.1f}  {:>10.1f}", 1e3 * row.seconds,
                 static_cast<double>(row.batch.global_batch) / row.seconds);
    }
    fmt::print("\n");
  }
}

// Returns the time of the fastest of a few training steps, of which nothing is stored.
double measured_seconds(Experiment& experiment, const DataSplit& data) {
  constexpr int64_t kSteps = 6;
  TrainingConfig& training = experiment.training;
  const auto steps = std::exchange(training.max_steps, kSteps);
  const auto epochs = std::exchange(training.num_epochs, std::nullopt);
  Session session =
      open_session(experiment, {.engines = engines(), .evaluation = false, .data = data});
  start_session(session);
  const TrainOutcome outcome =
      train(session, {}, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  training.max_steps = steps;
  training.num_epochs = epochs;
  return outcome.step_ms_min / 1e3;
}

// Returns the smallest micro-batch that is as good as the fastest; without estimates the largest.
const FitRow* best_of(const std::vector<FitRow>& rows) {
  const FitRow *fastest = nullptr, *best = nullptr;
  for (const FitRow& row : rows) {
    if (row.fit.fits() && (fastest == nullptr || row.seconds <= fastest->seconds)) fastest = &row;
  }
  for (const FitRow& row : rows) {
    if (!row.fit.fits() || row.seconds > kAsGood * fastest->seconds) continue;
    if (best == nullptr || row.seconds == 0) best = &row;
  }
  return best;
}

ExitCode run_fit(const FitOptions& options) {
  std::vector<std::string> extra;
  if (!options.memory.empty()) extra.push_back("--memory memory.budget=" + options.memory);
  Experiment experiment = options.config.load(extra);
  MachineRates rates = options.rates;
  if (!options.gpu.empty()) {
    const std::vector<Gpu> gpus = find_gpus(options.gpu);
    if (gpus.size() != 1) fail(ExitCode::usage, "fit requires one GPU in --gpu");
    rates.gpu = gpus.front();
  }
  const int world = options.world > 0
                        ? options.world
                        : std::max(static_cast<int>(experiment.parallelism.least_ranks()),
                                   options.ranks_per_node);
  check_nodes(world, options.ranks_per_node);
  if (options.measure && world > 1) {
    fail(ExitCode::usage, "--measure runs on one rank, but the configuration needs {}", world);
  }
  TrainingConfig& training = experiment.training;
  training.global_batch_size = check_ranks(experiment, world).global_batch;
  const bool counts_steps = training.gradient_accumulation_steps.has_value();
  training.gradient_accumulation_steps.reset();
  const std::vector<int64_t> sizes = possible_micro_batches(experiment, world);
  std::optional<DataSplit> data;
  std::vector<MemoryLimit> limits;
  std::vector<FitRow> rows;
  std::string matters, verdict;
  for (size_t i = 0; i < sizes.size(); ++i) {
    training.micro_batch_size = sizes[i];
    std::optional<Session> planned;
    try {
      planned.emplace(
          open_planned(experiment, world, options.ranks_per_node, rates.gpu, data, true));
    } catch (const Error&) {
      // Statistics of a batch need more than one sample.
      if (sizes[i] > 1 || i + 1 == sizes.size()) throw;
      continue;
    }
    const Session& session = *planned;
    if (!data) {
      data = session.options.data;
      limits = limits_of(session);
      matters = micro_batch_matters(session);
    }
    FitRow& row = rows.emplace_back();
    row.batch = session.batch;
    row.arena = session.executor->arena_bytes();
    row.fit = memory_fit(session, limits);
    if (row.fit.fits() && rates.gpu) row.seconds = estimate_layout(session, rates).seconds;
    if (row.fit.fits() && options.measure) row.seconds = measured_seconds(experiment, *data);
    if (row.fit.fits()) continue;
    if (verdict.empty() && rows.size() == 1) verdict = memory_verdict(session, row.fit, limits);
    // Larger ones need more, but for the whole share, which needs no sums over micro-batches.
    if (i + 2 < sizes.size()) i = sizes.size() - 2;
  }
  fmt::print("micro-batches of a global batch of {} on {} rank{}; {} {}{}\n",
             rows.front().batch.global_batch, world, world == 1 ? "" : "s", rows.front().fit.owner,
             bytes_text(rows.front().fit.has), rows.front().fit.ranks);
  const bool timed = rates.gpu || options.measure;
  print_table(rows, timed);
  const FitRow* best = best_of(rows);
  if (best == nullptr) {
    fmt::print("{}\n", verdict);
    return ExitCode::memory;
  }
  if (!matters.empty()) {
    fmt::print("warning: results depend on the micro-batch: {}\n", matters);
  }
  fmt::print(
      "the {}: -s training.micro_batch_size={}{}\n",
      timed ? "smallest within 2 % of the fastest" : "largest that fits", best->batch.micro_batch,
      counts_steps
          ? fmt::format(" -s training.gradient_accumulation_steps={}", best->batch.micro_steps)
          : "");
  return ExitCode::ok;
}

}  // namespace

CommandBody add_fit(CLI::App& command) {
  auto options = std::make_shared<FitOptions>();
  options->config.add_to(command, ConfigOptions::Use::training);
  add_text(command, "--memory", options->memory,
           "Memory of this machine, or of each GPU with --gpu: 80GB, 24GiB (sets memory.budget)");
  add_text(command, "--gpu", options->gpu,
           "Plan for a GPU that need not be here, with estimates: h100-80g, h200, a100-80g, "
           "a100-40g, l4, rtx4090, t4, or a YAML file")
      ->excludes(command.get_option("--device"));
  for (CLI::Option* link : add_links(command, options->rates)) {
    link->needs(command.get_option("--gpu"));
  }
  add_number(command, "--world", options->world, 1, 65536, "Plan for this many ranks");
  add_number(command, "--nproc-per-node", options->ranks_per_node, 1, 65536,
             "Ranks of a node (default: all ranks are on one)");
  CLI::Option* measure =
      command.add_flag("--measure", options->measure,
                       "Run a few steps with each micro-batch that fits, on this machine; nothing "
                       "is stored");
  for (const char* other : {"--gpu", "--world", "--nproc-per-node"}) {
    measure->excludes(command.get_option(other));
  }
  return [options] { return run_fit(*options); };
}

}  // namespace dltrain
