#include "dltrain/gpu_estimate.h"

#include <map>

#include "base/error.h"
#include "passes/tf32.h"
#include "run/memory_fit.h"

namespace dltrain {
namespace {

constexpr size_t kShownCalls = 10;

struct GpuEstimate {
  LayoutEstimate layout;
  double seconds = 0, rate = 0;
  std::string unit;  // of the rate
  std::string mfu;   // in percent; "-" where steps have several lengths
};

StepEstimate estimate_rank(const Session& session, const MachineRates& rates,
                           const std::function<void(const EstimatedEvent&)>& seen = {}) {
  const Executor& executor = *session.executor;
  return estimate_step(executor.training().graph, session.batch.micro_steps, executor.topology(),
                       rates, seen);
}

GpuEstimate estimate(const Session& session, const MachineRates& rates) {
  const Executor& executor = *session.executor;
  GpuEstimate out;
  out.layout = estimate_layout(session, rates);
  out.seconds = out.layout.seconds;
  const int64_t tokens = session.tokens_of_sample(executor.variants() - 1);
  out.unit = tokens > 0 ? "tokens/s" : "samples/s";
  out.rate =
      static_cast<double>(session.batch.global_batch * std::max<int64_t>(tokens, 1)) / out.seconds;
  const PrecisionConfig& precision = session.experiment->precision;
  const double peak =
      rates.gpu->peak_flops(precision.compute, precision.matmul == ProductMath::tf32);
  const double flops = session.step_model_flops();
  const double share = flops / out.seconds / peak;
  out.mfu = flops > 0 ? fmt::format("{:.1f}", 100 * share) : "-";
  return out;
}

// Returns a sentence with the gain of TF32 if it would make the step at least 5 % faster, by the
// f32 products of the first rank; else an empty text.
std::string tf32_advice(const Session& session, const MachineRates& rates, double seconds) {
  const PrecisionConfig& precision = session.experiment->precision;
  if (precision.matmul == ProductMath::tf32 || rates.gpu->flops(DType::f32, true) == 0) return {};
  const Executor& executor = *session.executor;
  PrecisionConfig with = precision;
  with.matmul = ProductMath::tf32;
  Graph graph = executor.training().graph;
  if (!mark_tf32(graph, with)) return {};
  const int64_t steps = session.batch.micro_steps;
  const RankTopology& topology = executor.topology();
  const double now = estimate_rank(session, rates).compute;
  const double gain = now - estimate_step(graph, steps, topology, rates).compute;
  if (gain < 0.05 * seconds) return {};
  return fmt::format(
      "precision.matmul=tf32 would make the step {:.2f} ms shorter: 10 bits of fraction in the "
      "operands of f32 products",
      1e3 * gain);
}

std::string gib(double bytes) {
  return fmt::format("{:.1f}", bytes / (1 << 30));
}

}  // namespace

std::string missing_precision(const Gpu& gpu, const Experiment& experiment) {
  const PrecisionConfig& p = experiment.precision;
  if (gpu.flops(p.compute) == 0) {
    return fmt::format("{} (precision.compute)", dtype_name(p.compute));
  }
  if (p.any_tf32() && gpu.flops(DType::f32, true) == 0) return "tf32 (precision.matmul)";
  return gpu.flops(p.low()) == 0 ? "bf16 (precision.overrides)" : "";
}

void check_precision(const Gpu& gpu, const Experiment& experiment) {
  const std::string lacks = missing_precision(gpu, experiment);
  if (!lacks.empty()) fail(ExitCode::usage, "{} does not compute in {}", gpu.name, lacks);
}

Session open_stage(const Session& session, int stage) {
  const int world = session.options.ranks.world;
  return open_planned_rank(*session.experiment, session.options, world,
                           stage * (world / session.coordinates.pipeline.count));
}

std::vector<StageTimes> estimate_stages(
    const Session& session, const MachineRates& rates,
    const std::function<void(const Session&, const StepEstimate&)>& visit,
    const std::function<void(const EstimatedEvent&)>& first_events) {
  const int count = session.coordinates.pipeline.count;
  std::map<int, StepEstimate> estimates;  // of ranks that differ
  const auto estimate = [&](int stage, const Session& rank) {
    estimates[stage] = estimate_rank(rank, rates, stage == 0 ? first_events : nullptr);
    if (visit) visit(rank, estimates[stage]);
  };
  std::vector<StageTimes> out;
  std::vector<StepSchedule> schedules = session.schedules();
  for (int i = 0; i < count; ++i) {
    const int like = session.executor->training().equal_rank(i, count);
    if (i == 0) {
      estimate(i, session);
    } else if (like == i) {
      estimate(i, open_stage(session, i));
    }
    out.push_back(estimates.at(like).times(std::move(schedules[static_cast<size_t>(i)])));
  }
  return out;
}

LayoutEstimate estimate_layout(const Session& session, const MachineRates& rates) {
  const auto budget = parse_bytes(session.experiment->memory.budget);
  LayoutEstimate out{.memory = static_cast<double>(
                         budget.value_or(static_cast<uint64_t>(rates.gpu->memory_bytes)))};
  double slowest = 0;
  const auto add = [&](const Session& rank, const StepEstimate& e) {
    out.needed =
        std::max(out.needed, static_cast<double>(rank.executor->arena_bytes()) + rates.reserve);
    if (e.compute + e.exposed < slowest) return;
    slowest = e.compute + e.exposed;
    out.compute = e.compute;
    out.exposed = e.exposed;
  };
  out.seconds = step_seconds(estimate_stages(session, rates, add));
  out.waits = out.seconds - out.compute - out.exposed;
  return out;
}

void print_gpu_estimate(const Session& session, const MachineRates& rates) {
  const GpuEstimate e = estimate(session, rates);
  fmt::print("estimate for {}, from published rates of kernels (docs/gpu/predictions.md):\n",
             rates.gpu->name);
  fmt::print("  step {:.2f} ms, {:.0f} {}, MFU {} %\n", 1e3 * e.seconds, e.rate, e.unit, e.mfu);
  if (session.coordinates.pipeline.count > 1) {
    fmt::print(
        "  of the slowest stage: {:.2f} ms of calls, {:.2f} ms of messages, {:.2f} ms of "
        "waiting for other stages\n",
        1e3 * e.layout.compute, 1e3 * e.layout.exposed, 1e3 * e.layout.waits);
  }
  fmt::print("  memory {} of {} GiB, 1 GiB of it for the driver and its libraries: {}\n",
             gib(e.layout.needed), gib(e.layout.memory), e.layout.fits() ? "fits" : "does not fit");
  const std::string faster = tf32_advice(session, rates, e.seconds);
  if (!faster.empty()) fmt::print("  {}\n", faster);
  const std::vector<CallSum> calls = estimate_rank(session, rates).calls;
  size_t width = 5;
  for (const CallSum& call : calls) width = std::max(width, call.name.size());
  fmt::print("  {:<{}}  {:>6}  {:>9}  {:>5}  {:>9}  {:>8}  limit\n", "calls", width, "number", "ms",
             "%", "GB", "TFLOP");
  const auto print_row = [&](const CallSum& call) {
    fmt::print("  {:<{}}  {:>6}  {:>9.3f}  {:>5.1f}  {:>9.3f}  {:>8.3f}{}{}\n", call.name, width,
               call.count, 1e3 * call.seconds, 100 * call.seconds / e.seconds, call.bytes / 1e9,
               call.flops / 1e12, call.limit.empty() ? "" : "  ", call.limit);
  };
  CallSum rest{.name = "others", .limit = {}};
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i < kShownCalls) {
      print_row(calls[i]);
      continue;
    }
    rest.count += calls[i].count;
    rest.seconds += calls[i].seconds;
    rest.bytes += calls[i].bytes;
    rest.flops += calls[i].flops;
  }
  if (rest.count > 0) print_row(rest);
  print_alignment(session.executor->training().graph, *rates.gpu);
}

bool print_gpu_line(const Session& session, const MachineRates& rates, bool heading) {
  const GpuEstimate e = estimate(session, rates);
  if (heading) {
    fmt::print("{:<12}  {:>10}  {:>10}  {:>6}  memory (GiB)\n", "GPU", "step (ms)", e.unit,
               "MFU %");
  }
  fmt::print("{:<12}  {:>10.2f}  {:>10.0f}  {:>6}  {} of {}: {}\n", rates.gpu->name,
             1e3 * e.seconds, e.rate, e.mfu, gib(e.layout.needed), gib(e.layout.memory),
             e.layout.fits() ? "fits" : "does not fit");
  return e.layout.fits();
}

}  // namespace dltrain
