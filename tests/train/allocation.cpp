// Counts allocations of the training loop: operator new and malloc of this program are replaced,
// and read between two steps of train(): loader with its thread, micro-steps, update, collected
// reports. What oneDNN and the OpenMP runtime do inside is counted on its own.
// The operators below replace all of new and delete together; g++ does not see that they match.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include <dlfcn.h>

#include "base/error.h"
#include "catch.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "reference/engine.h"
#include "train/session.h"
#include "train/trainer.h"

using namespace dltrain;

namespace {

std::atomic<bool> counting{false};
std::atomic<long> own{0}, vendors{0};

void count(void* caller) {
  if (!counting) return;
  Dl_info info{};
  const bool known = dladdr(caller, &info) != 0 && info.dli_fname != nullptr;
  const std::string_view library = known ? info.dli_fname : "";
  const bool vendor = library.find("libdnnl") != std::string_view::npos ||
                      library.find("libgomp") != std::string_view::npos;
  ++(vendor ? vendors : own);
}

void* allocate(size_t bytes, size_t alignment, void* caller) {
  count(caller);
  void* out = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (out == nullptr) throw std::bad_alloc();
  return out;
}

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
  const auto experiment = load_config<Experiment>(inputs);
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  start_session(session);
  TrainEvents events;
  events.on_progress = [](int64_t step) {
    if (step == kFirst) own = 0, vendors = 0, counting = true;
    if (step == kLast) counting = false;
  };
  train(session, events, {.run_folder = {}, .resolved_config = {}, .handle_signals = false});
  return {own, vendors};
}

}  // namespace

void* operator new(size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new[](size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t, std::align_val_t) noexcept {
  std::free(p);
}

// The sanitizers have a malloc of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(size_t bytes);
void* malloc(size_t bytes) {
  count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
}
#endif

TEST_CASE("the counters of allocations count") {
  own = 0, counting = true;
  auto* values = new std::vector<int>(100);
  counting = false;
  delete values;
  CHECK(own == 2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  own = 0, counting = true;
  void* volatile plain = std::malloc(100);
  counting = false;
  std::free(plain);
  CHECK(own == 1);
#endif
}

TEST_CASE("steps of training allocate nothing") {
  const auto [name, overrides] = GENERATE(table<std::string, std::vector<std::string>>({
      {"tests/train/mlp.yaml", {}},
      {"tests/train/mlp.yaml", {"training.micro_batch_size=8"}},
      {"tests/train/convnet.yaml", {}},
  }));
  const Allocations found = of_training(name, overrides);
  INFO(name << ", micro-steps as in " << (overrides.empty() ? "the file" : overrides[0]));
  CHECK(found.own == 0);
  WARN(name << ": inside oneDNN and OpenMP " << found.vendors << " in " << kLast - kFirst
            << " steps");
}
