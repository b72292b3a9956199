// How much of a delay of every gradient message shows in the time of a step.
//
//   bench_overlap [ROUNDS [LAYERS [WIDTH]]]
//
// Two ranks of one thread each train a stack of linear layers, a bucket a layer, on this
// machine. A transport between holds the communication thread before every operation, as a slower
// network would; the delays of a step together take a given share of the backward. Steps with and
// without take turns; the median of the differences within a turn counts, as times drift more than
// the delays are long. "shows" is the share of all delays by which a step gets longer: the last
// message of a step has no computation left to hide behind, so 1 / messages always shows.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <omp.h>

#include "base/error.h"
#include "comm/host_collectives.h"
#include "comm/store.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "run/session.h"

using namespace dltrain;

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

Experiment make_experiment(int layers, int width) {
  std::string list = "[";
  for (int i = 0; i < layers; ++i) {
    list += fmt::format("{{linear: {{out_features: {}, bias: false}}}}, gelu, ", width);
  }
  return load_config<Experiment>(
      {.files = {},
       .overrides = {"model.layers=" + list + "{linear: 4}]",
                     fmt::format("data.train={{type: synthetic, shape: [{}], classes: 4, samples: "
                                 "512}}",
                                 width),
                     "optimizer={type: sgd, learning_rate: 1.0e-4}", "device=cpu",
                     "training={global_batch_size: 512, max_steps: 1}",
                     // A layer's weight and no more.
                     fmt::format("parallelism.bucket_mb={}", 4.0 * width * width / (1 << 20))}});
}

struct StepTime {
  double whole = 1e9, forward = 1e9, both = 1e9;
  double backward() const { return both - forward; }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Rank {
 public:
  Rank(Collectives& group, Experiment& experiment)
      : group_(group),
        session_(open_session(
            experiment,
            {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()},
             .ranks = {.collectives = &group, .rank = group.rank(), .world = group.size()},
             .evaluation = false})) {
    start_session(session_);
    loader_.emplace(session_.data.train, train_loader_options(session_, 0, 0),
                    session_.executor->device());
  }

  // Both ranks begin together. Forward and backward are one call; the forward is timed alone.
  // Returns the seconds of forward, backward and update.
  double step(StepTime& least) {
    const Batch& batch = loader_->next();
    const StepInputs inputs{.seed = 0,
                            .step = 0,
                            .sample_offset = batch.sample_offset,
                            .learning_rate = 1e-4,
                            .inverse_valid = 1.0 / batch.loss_divisor,
                            .max_grad_norm = 0};
    auto begin = Clock::now();
    session_.executor->forward(batch.fields, inputs);
    least.forward = std::min(least.forward, Seconds(Clock::now() - begin).count());
    group_.barrier();
    begin = Clock::now();
    session_.executor->micro_step(batch.fields, inputs, 0);
    least.both = std::min(least.both, Seconds(Clock::now() - begin).count());
    session_.executor->update();
    session_.executor->collect();
    const double whole = Seconds(Clock::now() - begin).count();
    least.whole = std::min(least.whole, whole);
    return whole;
  }

 private:
  Collectives& group_;
  Session session_;
  std::optional<TrainLoader> loader_;
};

void run(int rank, int port, int rounds, int layers, int width) {
  omp_set_num_threads(1);
  StoreClient store({.port = port, .prefix = "overlap/"});
  std::atomic<double> delay = 0;
  std::atomic<int> operations = 0;
  HostCollectives group(store, {.rank = rank, .size = 2, .before_operation = [&] {
                                  ++operations;
                                  if (delay > 0) std::this_thread::sleep_for(Seconds(delay));
                                }});
  Experiment experiment = make_experiment(layers, width);
  Rank worker(group, experiment);
  StepTime plain;
  for (int i = 0; i < 3; ++i) worker.step(plain);
  plain = {};
  operations = 0;
  worker.step(plain);
  const int messages = operations - 1;  // but the barrier
  for (int i = 0; i < rounds; ++i) worker.step(plain);
  double common = plain.backward();  // the same delays on both ranks
  const auto stream = cpu_engine().open(0)->make_stream();
  group.wait(group.all_reduce(&common, 1, DType::f64, ReduceOp::max, *stream), *stream);
  for (const double share : {0.25, 0.5, 0.75}) {
    const double each = share * common / messages;
    StepTime least;
    std::vector<double> without(static_cast<size_t>(rounds)), longer(without.size());
    for (size_t i = 0; i < without.size(); ++i) {
      // Now the one first, now the other.
      double with = 0;
      for (const bool late : {i % 2 == 0, i % 2 != 0}) {
        delay = late ? each : 0;
        (late ? with : without[i]) = worker.step(least);
      }
      longer[i] = with - without[i];
    }
    delay = 0;
    if (rank != 0) continue;
    const double usual = median(without), more = median(longer);
    fmt::print(
        "{} messages of a step, {:.0f} us late each ({:.0f} % of a backward of {:.1f} ms): "
        "step {:.2f} ms instead of {:.2f}, {:.0f} % of the delay shows\n",
        messages, 1e6 * each, 100 * share, 1e3 * common, 1e3 * (usual + more), 1e3 * usual,
        100 * more / (each * messages));
    std::fflush(stdout);
  }
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const int rounds = number(1, 20), layers = number(2, 24), width = number(3, 512);
  try {
    StoreServer server("127.0.0.1", 0);
    std::thread other([&] { run(1, server.port(), rounds, layers, width); });
    run(0, server.port(), rounds, layers, width);
    other.join();
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
