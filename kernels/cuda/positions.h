// Queues rotary and sinusoidal_positions (lib/ops/positions.cpp). dtype: f32, f64, bf16 or f16. y
// may be x. `places`: i32, of each sample the place of its first token; nullptr: 0.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct RotaryCall {
  static constexpr int kMostPairs = 256;
  DType dtype = DType::f32;
  int64_t rows = 0;  // samples · tokens
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int pairs = 0;                 // that turn; elements behind 2·pairs stay
  double sign = 1;               // −1: back
  double frequency[kMostPairs];  // radians a token
};

void launch_rotary(const RotaryCall& call, const void* x, const int32_t* places, void* y,
                   CudaStream stream);

struct SinusoidCall {
  DType dtype = DType::f32;
  int64_t count = 0, tokens = 0, width = 0;
};

void launch_sinusoidal_positions(const SinusoidCall& call, const void* x, const int32_t* places,
                                 void* y, CudaStream stream);

}  // namespace dltrain
