// Trainings of several ranks over the fake CUDA runtime: each rank is a process with a runtime of
// its own, and all meet over TCP.
#pragma once

#include <string>
#include <vector>

#include "cuda_runtime/fake_runtime.h"
#include "cuda_runtime/recorded_steps.h"
#include "run/layout_run.h"

namespace dltrain {

// The CPU engine, or the CUDA engine and what carries its messages.
enum class RankBackend { cpu, staged, nccl };

struct RankRun {
  Network network;
  int ranks = 2;
  std::vector<std::string> overrides = {};
  RankBackend backend = RankBackend::staged;
  fake_cuda::Order order = fake_cuda::Order::late;
  int gpus = 8;                 // of the machine
  int major = 9;                // of their architecture
  std::string stub_fails = {};  // DLTRAIN_STUB_NCCL_FAIL
};

// The record of rank 0; equal on all ranks except for the counts.
struct RankTrajectory : RecordedSteps {
  std::string note, warning;          // of the choice of what carries the messages
  std::vector<std::string> messages;  // of each rank's failure; empty: none
  std::vector<int> codes;             // of each rank
  bool same_as(const RankTrajectory& other) const {
    return !loss.empty() && loss == other.loss && grad_norm == other.grad_norm;
  }
};

RankTrajectory run_on(const RankRun& run);

// In the process of a rank: the engine, with the NCCL of the tests where that is to carry messages.
// Its devices are the GPU of this number.
Engine open_backend(RankBackend backend, const std::string& stub_fails, int gpu = 0);

}  // namespace dltrain
