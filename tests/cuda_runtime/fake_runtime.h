// A CUDA runtime for tests, without a GPU or driver: the functions that kernels/cuda/vendor calls,
// with "device memory" on the host. Launches of emulated kernels go through it too.
//
// A stream does its work as late as it may: when the host waits for it, or another stream's work
// that waits for it is done. So what the host forgets to wait for is not there, and what streams
// forget to wait for has not happened. Eager streams do everything at once.
//
// It counts what a training step should not do, and can be told to fail.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <driver_types.h>

namespace dltrain::fake_cuda {

struct Counts {
  int64_t allocations = 0, frees = 0;  // of device and pinned memory
  int64_t synchronisations = 0;        // the host waits for a whole stream or device
  int64_t pageable_copies = 0;         // CUDA may wait for the stream in them
  int64_t event_waits = 0;             // the host waits for one mark
  int64_t made = 0;                    // streams, events, graphs
  int64_t launches = 0, graph_launches = 0, copies = 0;
  int64_t host_calls = 0;               // functions of the host that a stream calls
  int64_t products = 0;                 // by cuBLASLt, which compute nothing
  int64_t plans = 0, convolutions = 0;  // by cuDNN, made and run (set_plan_work)
};

enum class Order { late, eager };

struct Gpu {
  const char* name = "Fake H200";
  int major = 9, minor = 0;
  size_t total = size_t{141} << 30;
  size_t held_by_others = 0;
};

// Begins a test: nothing is counted, nothing fails, one GPU.
void reset(Order order = Order::late);
Counts counts();
// Work that is queued on any stream and not done.
size_t pending();

void set_gpu(const Gpu& gpu);
// The algorithms that cuBLASLt knows for any product: how long each takes; it refuses those of
// negative time. Algorithm i needs i KiB.
void set_algorithms(std::vector<float> milliseconds);
// A and B of the last product, in the library's order.
struct Product {
  std::array<uintptr_t, 2> scales{};  // 0: none
  std::array<int, 2> modes{};         // a cublasLtMatmulMatrixScale_t each
  std::array<int, 2> types{};         // a cudaDataType each
  std::array<int32_t, 2> transposed{};
};
Product last_product();
// Sets the status that cuBLASLt's heuristic returns (a cublasStatus_t).
void set_heuristic(int status);
// The plans that cuDNN proposes for any convolution, best first as it estimates. Plan i is engine
// i.
struct DnnPlan {
  float milliseconds = 1;  // negative: it is refused when it is run
  int64_t workspace = 0;
  bool deterministic = true, builds = true;
};
void set_plans(std::vector<DnnPlan> plans);
// The computation of every run of a plan, in stream order, from the addresses by their tensors'
// identifiers. None unless it is set.
using PlanWork = std::function<void(const std::map<int64_t, void*>& tensors)>;
void set_plan_work(PlanWork work);
// Counts one run of a plan, which takes so long, and queues its work.
void run_plan(float milliseconds, cudaStream_t stream, std::function<void()> work);
void count_plan();
// The stream that a cuDNN handle works on, and work of a library on a stream: counted as one launch
// that takes so long.
void* stream_of(void* dnn_handle);
void run_on(void* stream, float milliseconds, std::function<void()> work);
// How long a call of a recurrent network takes (fake_cudnn_rnn.cpp); negative: cuDNN supports none.
void set_rnn_time(float milliseconds);
float rnn_time();
// Sets the result of cudaGetDeviceCount; `driver` as 12040 for CUDA 12.4.
void set_devices(int count, cudaError_t code = cudaSuccess, int driver = 13000);
// The call number `after` (0: the next one) of this function of the runtime, or of any kernel where
// it is "launch" ("captured launch": while it is captured), returns `code`; so do all later calls
// where it is an error that loses the context.
void fail_at(const std::string& function, int64_t after, cudaError_t code);
// The launch number `after` of a graph never ends.
void stall_graph_at(int64_t after);

}  // namespace dltrain::fake_cuda
