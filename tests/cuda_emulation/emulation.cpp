#include "cuda_emulation/emulation.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "cuda_emulation/queue.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace dltrain::emulation {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kStack = 128 << 10;

enum class State { ready, at_block_barrier, at_warp_exchange, done };

// Contexts are made by makecontext, but switched with _setjmp and _longjmp: swapcontext makes two
// system calls each time.
struct Fiber {
  ucontext_t start;
  jmp_buf context;
  bool started = false;
  void* stack = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
  Position position;
  State state = State::done;
  uint64_t given = 0, taken = 0;  // by a warp exchange
  int offset = 0;
};

// One block at a time; everything runs on the thread that launches.
class Machine {
 public:
  void run_block(const char* kernel, dim3 grid, dim3 block, dim3 index,
                 const std::function<void()>& body) {
    kernel_ = kernel;
    body_ = &body;
    const unsigned threads = block.x * block.y * block.z;
    prepare(threads);
    for (unsigned t = 0; t < threads; ++t) {
      fibers_[t].position = {dim3(t % block.x, t / block.x % block.y, t / (block.x * block.y)),
                             index, block, grid};
      fibers_[t].state = State::ready;
    }
    std::vector<unsigned> order(threads);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random_);
    size_t done = 0;
    while (done < threads) {
      for (unsigned t : order) {
        if (fibers_[t].state == State::ready) resume(fibers_[t]);
      }
      try {
        release(threads);
      } catch (...) {
        discard_stuck_fibers();
        throw;
      }
      done =
          static_cast<size_t>(std::count_if(fibers_.begin(), fibers_.begin() + threads,
                                            [](const Fiber& f) { return f.state == State::done; }));
    }
  }

  // Called by fibers.
  void wait(State state) {
    current_->state = state;
    leave();
  }
  // Errors of a fiber are thrown by the scheduler: an exception cannot leave a fiber's stack.
  void fault(std::string what) { fault_ = std::move(what); }
  Fiber& current() { return *current_; }
  void* shared() { return shared_.data(); }
  void set_shared(size_t bytes) { shared_.assign((bytes + 15) / 16, {~0u, ~0u, ~0u, ~0u}); }
  std::mt19937& random() { return random_; }

 private:
  void prepare(unsigned threads) {
    for (; prepared_ < threads; ++prepared_) {
      Fiber& fiber = fibers_[prepared_];
      if (fiber.stack != nullptr) continue;
      fiber.stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
      if (fiber.stack == MAP_FAILED) throw std::runtime_error("emulation: no memory for stacks");
      getcontext(&fiber.start);
      fiber.start.uc_stack.ss_sp = fiber.stack;
      fiber.start.uc_stack.ss_size = kStack;
      makecontext(&fiber.start, &Machine::fiber_main, 0);
    }
  }

  // They stand in the middle of a kernel: the next launch makes new ones.
  void discard_stuck_fibers() {
    fault_.clear();
    prepared_ = 0;
    for (Fiber& fiber : fibers_) {
      if (fiber.state == State::done) continue;
      munmap(fiber.stack, kStack);
      fiber = Fiber{};
    }
  }

  // A fiber lives as long as the program and runs one thread after the other.
  static void fiber_main();

  void resume(Fiber& fiber) {
    current_ = &fiber;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack_, fiber.stack, kStack);
#endif
    if (_setjmp(scheduler_) == 0) {
      if (fiber.started) _longjmp(fiber.context, 1);
      fiber.started = true;
      setcontext(&fiber.start);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
  }

  void arrive() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(current_->fake_stack, &scheduler_stack_, &scheduler_bytes_);
#endif
  }
  void leave() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&current_->fake_stack, scheduler_stack_, scheduler_bytes_);
#endif
    if (_setjmp(current_->context) == 0) _longjmp(scheduler_, 1);
    arrive();
  }

  // Lets threads go on whose whole block or warp has come; throws when none ever can.
  void release(unsigned threads) {
    if (!fault_.empty()) throw std::runtime_error(std::string(kernel_) + ": " + fault_);
    unsigned waiting = 0, released = 0, finished = 0, at_barrier = 0;
    for (unsigned t = 0; t < threads; ++t) {
      finished += fibers_[t].state == State::done ? 1 : 0;
      at_barrier += fibers_[t].state == State::at_block_barrier ? 1 : 0;
    }
    if (at_barrier == threads) {
      for (unsigned t = 0; t < threads; ++t) fibers_[t].state = State::ready;
      return;
    }
    waiting = threads - finished;
    for (unsigned first = 0; first < threads; first += kWarp) {
      released += release_warp(first, std::min(first + kWarp, threads));
    }
    if (waiting > 0 && released == 0) {
      throw std::runtime_error(std::string(kernel_) +
                               ": some threads wait at a barrier or shuffle that others left out");
    }
  }

  unsigned release_warp(unsigned first, unsigned last) {
    for (unsigned t = first; t < last; ++t) {
      if (fibers_[t].state != State::at_warp_exchange) return 0;
    }
    for (unsigned t = first; t < last; ++t) {
      const unsigned other = first + ((t - first) ^ static_cast<unsigned>(fibers_[t].offset));
      if (other >= last) throw std::runtime_error(std::string(kernel_) + ": shuffle with no lane");
      fibers_[t].taken = fibers_[other].given;
      fibers_[t].state = State::ready;
    }
    return last - first;
  }

  const char* kernel_ = "";
  const std::function<void()>* body_ = nullptr;
  std::string fault_;
  std::vector<Fiber> fibers_ = std::vector<Fiber>(1024);  // never grows: contexts point inside
  size_t prepared_ = 0;                                   // the first ones have stacks
  Fiber* current_ = nullptr;
  jmp_buf scheduler_;
  std::vector<uint4> shared_;
  std::mt19937 random_{1};
  // AddressSanitizer's view of the scheduler's stack.
  void* fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
};

Machine& machine() {
  static Machine instance;
  return instance;
}

void Machine::fiber_main() {
  Machine& m = machine();
  m.arrive();
  for (;;) {
    (*m.body_)();
    m.wait(State::done);
  }
}

void check(bool allowed, const char* kernel, const char* what) {
  if (!allowed) throw std::runtime_error(std::string(kernel) + ": " + what);
}

}  // namespace

const Position& position() {
  return machine().current().position;
}

void launch(const char* kernel, dim3 grid, dim3 block, const std::function<void()>& thread,
            size_t shared) {
  check(grid.x > 0 && grid.y > 0 && grid.z > 0, kernel, "the grid is empty");
  check(grid.x < (1u << 31) && grid.y < 65536 && grid.z < 65536, kernel, "the grid is too large");
  check(block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64, kernel, "bad block");
  check(uint64_t{block.x} * block.y * block.z <= 1024, kernel, "a block of over 1024 threads");
  check(shared <= kMostShared, kernel, "too much shared memory");
  machine().set_shared(shared);
  std::vector<uint64_t> order(uint64_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::shuffle(order.begin(), order.end(), machine().random());
  for (uint64_t i : order) {
    const dim3 index(static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                     static_cast<unsigned>(i / (uint64_t{grid.x} * grid.y)));
    machine().run_block(kernel, grid, block, index, thread);
  }
}

namespace {
Queue& queue() {
  static Queue instance;
  return instance;
}
}  // namespace

void set_queue(Queue taken) {
  queue() = std::move(taken);
}

void launch_on(void* stream, const char* kernel, dim3 grid, dim3 block,
               std::function<void()> thread, size_t shared) {
  if (stream == nullptr || !queue()) return launch(kernel, grid, block, thread, shared);
  queue()(stream, kernel,
          [=, thread = std::move(thread)] { launch(kernel, grid, block, thread, shared); });
}

void* shared_memory() {
  return machine().shared();
}

void block_barrier() {
  machine().wait(State::at_block_barrier);
}

uint64_t exchange_xor(uint32_t mask, uint64_t bits, int offset) {
  Fiber& fiber = machine().current();
  if (mask != 0xffffffffu) machine().fault("a shuffle whose mask is not the whole warp");
  fiber.given = bits;
  fiber.offset = offset;
  machine().wait(State::at_warp_exchange);
  return fiber.taken;
}

}  // namespace dltrain::emulation
