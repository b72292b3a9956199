// bench_plan: how long each op of a configuration's training step takes on the CPU.
//
//   bench_plan CONFIG [SECONDS [KEY=VALUE …]]
//
// Opens the configuration as `dltrain train` does (data included), runs the kernel calls of one
// micro-step and the update in order, over and over, and prints each call's least time in µs, its
// share, GFLOP/s, the kernel's variant and the layer, then sums by op. OMP_NUM_THREADS sets the
// threads; with one, processor time is taken, so that other work on the machine counts little.
// Parameters move as in a run.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <omp.h>
#include <time.h>

#include "base/error.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "run/session.h"

using namespace dltrain;

namespace {

double seconds() {
  timespec t{};
  clock_gettime(omp_get_max_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct TimedCall {
  const Call* call;
  const BoundCall* bound;
  double least = 1e9;
};

std::vector<TimedCall> calls_of_step(const Frame& frame) {
  const Program& program = frame.program();
  std::vector<TimedCall> out;
  for (Phase phase : {Phase::forward, Phase::backward, Phase::update}) {
    for (size_t i : program.segment(phase, MicroStep::only)) {
      out.push_back({&program.calls()[i], &frame.call(i)});
    }
  }
  return out;
}

double flops_of(const Graph& graph, const Node& node) {
  return graph.cost(node).flops;
}

void print(const Program& program, const std::vector<TimedCall>& calls) {
  const Graph& graph = program.graph();
  double total = 0;
  std::map<std::string, double> by_op;
  for (const TimedCall& timed : calls) {
    const Node& node = graph.nodes[timed.call->node];
    total += timed.least;
    by_op[fmt::format("{} ({})", node.op->name, timed.call->row->variant)] += timed.least;
  }
  for (const TimedCall& timed : calls) {
    const Node& node = graph.nodes[timed.call->node];
    fmt::print("{:10.1f} {:5.1f} % {:7.1f}  {:<28} {:<12} {:<24} {}\n", 1e6 * timed.least,
               100 * timed.least / total, flops_of(graph, node) / timed.least / 1e9, node.op->name,
               timed.call->row->variant, node.layer, to_string(graph.value(node.outputs[0]).spec));
  }
  fmt::print("by op:\n");
  std::vector<std::pair<std::string, double>> sums(by_op.begin(), by_op.end());
  std::sort(sums.begin(), sums.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [op, least] : sums) {
    fmt::print("{:10.1f} {:5.1f} %  {}\n", 1e6 * least, 100 * least / total, op);
  }
  fmt::print("{:10.1f} µs in all\n", 1e6 * total);
}

// Inputs lie in memory that later values of the step take over.
void fill_inputs(Session& session, const Batch& batch, Stream& stream) {
  const StepGraph& graph = session.executor->training();
  const Frame& frame = session.executor->training_frame();
  for (size_t i = 0; i < graph.slots.size(); ++i) {
    session.executor->device().copy(frame.address(graph.slots[i]), batch.fields[i],
                                    graph.graph.value(graph.slots[i]).spec.bytes(), stream);
  }
  stream.synchronize();
}

void run(const std::string& config, double duration, const std::vector<std::string>& overrides) {
  auto experiment = load_config<Experiment>({.files = {config}, .overrides = overrides});
  Session session = open_session(
      experiment,
      {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}, .evaluation = false});
  start_session(session);
  TrainLoader loader(session.data.train, train_loader_options(session, 0, 0),
                     session.executor->device());
  const Batch& batch = loader.next();
  const StepInputs inputs{.seed = 1,
                          .step = 0,
                          .sample_offset = 0,
                          .learning_rate = experiment.optimizer->learning_rate * 1e-3,
                          .inverse_valid = 1.0 / static_cast<double>(session.batch.global_batch),
                          .max_grad_norm = 0};
  session.executor->micro_step(batch.fields, inputs, 0);
  session.executor->update();
  const Program& program = session.executor->training_program();
  std::vector<TimedCall> calls = calls_of_step(session.executor->training_frame());
  const auto stream = session.executor->device().make_stream();
  double least = 1e9;
  for (const double start = seconds(); seconds() - start < duration;) {
    fill_inputs(session, batch, *stream);
    const double step = seconds();
    double before = step;
    for (TimedCall& timed : calls) {
      timed.bound->run(*stream);
      const double now = seconds();
      timed.least = std::min(timed.least, now - before);
      before = now;
    }
    least = std::min(least, seconds() - step);
  }
  print(program, calls);
  fmt::print("{:10.1f} µs, the least of a whole step\n", 1e6 * least);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_plan CONFIG [SECONDS [KEY=VALUE …]]\n");
    return 2;
  }
  try {
    const std::vector<std::string> overrides(argv + std::min(argc, 3), argv + argc);
    run(argv[1], argc > 2 ? std::atof(argv[2]) : 5, overrides);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
