// Counts allocations of the training loop: operator new and malloc of this program are replaced,
// and read between two steps of train(): loader with its thread, micro-steps, update, collected
// reports. What oneDNN and the OpenMP runtime do inside is counted on its own.

#include <cstdlib>

#include "base/error.h"
#include "catch.h"
#include "config/load.h"
#include "count_allocations.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "run/session.h"
#include "run/trainer.h"

using namespace dltrain;

namespace {

constexpr int64_t kFirst = 20, kLast = 60;  // steps between which allocations are counted

struct Allocations {
  long own = 0, vendors = 0;
};

Allocations of_training(const std::string& recipe, std::vector<std::string> overrides) {
  overrides.push_back("training.max_steps=80");
  overrides.push_back("logging.logging_steps=1000");
  ConfigInputs inputs;
  inputs.files = {std::string(DLTRAIN_SOURCE_DIR) + "/" + recipe};
  inputs.overrides = overrides;
  auto experiment = load_config<Experiment>(inputs);
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  start_session(session);
  TrainEvents events;
  events.on_progress = [](int64_t step) {
    if (step == kFirst) AllocationCounter::start();
    if (step == kLast) AllocationCounter::stop();
  };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  return {AllocationCounter::own, AllocationCounter::vendors};
}

}  // namespace

// The sanitizers have a malloc of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  AllocationCounter::count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
}
#endif

TEST_CASE("the counters of allocations count") {
  AllocationCounter::start();
  auto* values = new std::vector<int>(100);
  CHECK(AllocationCounter::stop() == 2);
  delete values;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  AllocationCounter::start();
  void* volatile plain = std::malloc(100);
  CHECK(AllocationCounter::stop() == 1);
  std::free(plain);
#endif
}

TEST_CASE("steps of training allocate nothing") {
  const auto [name, overrides] = GENERATE(table<std::string, std::vector<std::string>>({
      {"tests/run/mlp.yaml", {}},
      {"tests/run/mlp.yaml", {"training.micro_batch_size=8"}},
      {"tests/run/convnet.yaml", {}},
  }));
  const Allocations found = of_training(name, overrides);
  INFO(name << ", micro-steps as in " << (overrides.empty() ? "the file" : overrides[0]));
  CHECK(found.own == 0);
  WARN(name << ": inside oneDNN and OpenMP " << found.vendors << " in " << kLast - kFirst
            << " steps");
}
