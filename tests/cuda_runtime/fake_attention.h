// cuDNN's attention for tests, in the place of cudnn_attention_plan.cpp: plans that compute on the
// host what NVIDIA documents, with a generator of their own for dropout.
#pragma once

#include <cstdint>
#include <vector>

namespace dltrain::fake_cuda {

struct FakeAttention {
  std::vector<float> milliseconds{1};  // of the proposals; negative: it cannot be built
  bool has_backward = true;
  int plans = 0, builds = 0, restored = 0, runs = 0;  // counted
  std::vector<uint64_t> seeds = {};                   // of the runs with dropout
};
FakeAttention& fake_attention();

}  // namespace dltrain::fake_cuda
