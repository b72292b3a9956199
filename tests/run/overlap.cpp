// Reductions travel while the backward computes: no message ends before the next one has begun, and
// yet the step goes on.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "comm/host_collectives.h"
#include "comm/store.h"
#include "run/layout_run.h"

using namespace dltrain;
using namespace std::chrono_literals;

namespace {

// The progress of one rank; written by two threads.
struct Progress {
  std::atomic<int> begun = 0;    // messages that the computing thread has handed over
  std::atomic<int> started = 0;  // that the communicating thread has taken up
  std::atomic<int> held = 0;     // of these, how many were held until the next was handed over
  std::atomic<int> lost = 0;     // how many waited for that in vain
  std::atomic<int> gated = 0;    // messages of a step that are to be held; 0: none
};

// Holds every message but the last until the next one was handed over.
void hold(Progress& progress) {
  const int number = ++progress.started;
  if (number >= progress.gated) return;
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (progress.begun <= number && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(50us);
  }
  ++(progress.begun > number ? progress.held : progress.lost);
}

class CountedCollectives final : public HostCollectives {
 public:
  CountedCollectives(StoreClient& store, const HostGroupOptions& options, Progress& progress)
      : HostCollectives(store, options), progress_(progress) {}
  void wait(Ticket ticket, Stream& before) override {
    if (before_first_wait == 0) before_first_wait = progress_.begun;
    HostCollectives::wait(ticket, before);
  }

  int before_first_wait = 0;  // messages of the step

 private:
  Ticket queue(const CollectiveCall& call, Stream& after) override {
    if (call.kind == CollectiveKind::all_reduce) ++progress_.begun;
    return HostCollectives::queue(call, after);
  }
  Progress& progress_;
};

}  // namespace

TEST_CASE("every bucket travels while the backward goes on to the next") {
  std::string layers = "[";
  for (int i = 0; i < 20; ++i) layers += "{linear: {out_features: 64, bias: false}}, gelu, ";
  const Network deep{
      "deep",
      {"model.layers=" + layers + "{linear: 4}]",
       "data.train={type: synthetic, shape: [64], classes: 4, samples: 64}",
       "training={global_batch_size: 64, max_steps: 4}", "parallelism.bucket_mb=0.015625"}};
  StoreServer server("127.0.0.1", 0);
  std::array<Progress, 2> progress;
  std::array<int, 2> messages{};
  run_rank_threads(2, [&](ThreadCollectives& place) {
    const auto rank = static_cast<size_t>(place.rank());
    StoreClient store({.port = server.port(), .prefix = "overlap/"});
    CountedCollectives group(store,
                             {.rank = place.rank(),
                              .size = 2,
                              .timeout = 60s,
                              .before_operation = [&held = progress[rank]] { hold(held); }},
                             progress[rank]);
    Experiment experiment = layout_experiment(deep, {});
    SessionOptions options = layout_options(place);
    options.ranks.collectives = &group;
    Session session = open_session(experiment, options);
    start_session(session);
    TrainLoader loader(session.data.train, train_loader_options(session, 0, 0),
                       session.executor->device());
    const auto step = [&](int gated) {
      group.barrier();
      place.barrier();
      progress[rank].begun = progress[rank].started = 0;
      progress[rank].gated = gated;
      group.before_first_wait = 0;
      place.barrier();
      const Batch& batch = loader.next();
      const StepInputs inputs{.seed = 0,
                              .step = 0,
                              .sample_offset = batch.sample_offset,
                              .learning_rate = 0.01,
                              .inverse_valid = 1.0 / batch.loss_divisor,
                              .max_grad_norm = 0};
      session.executor->micro_step(batch.fields, inputs, 0);
      session.executor->update();
      session.executor->collect();
    };
    step(0);
    messages[rank] = group.before_first_wait;
    step(messages[rank]);
    progress[rank].gated = 0;
    group.barrier();
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(messages[rank] >= 20);
    CHECK(progress[rank].lost == 0);
    CHECK(progress[rank].held == messages[rank] - 1);
  }
}
