// The element-wise part of recurrent networks on the CPU: the part of a step after the product of
// weight and state, and its backward. T: float or Bf16, the dtype of the op's tensors; intermediate
// values are f32.
//
// Work of one step is dense, [samples, …]; the op's tensors are by token. Absent optional addresses
// are nullptr.
#pragma once

#include <tuple>

#include "ops/recurrent.h"
#include "tensor/low_precision.h"

namespace dltrain {

template <typename T>
struct RecurrentStep {
  RecurrentSizes sizes;
  const T *x = nullptr, *bias = nullptr;
  const float* product = nullptr;  // [samples, width]: state · Wᵀ
  float* cell = nullptr;           // [samples, hidden]: c of an LSTM, h of a GRU; kept in f32
  T* state = nullptr;              // [samples, hidden]: h, for the next product
  T *y = nullptr, *gates = nullptr, *cells = nullptr;
};

template <typename T>
struct RecurrentBackwardStep {
  RecurrentSizes sizes;
  const T *dy = nullptr, *y = nullptr, *gates = nullptr, *cells = nullptr;
  const T *initial_state = nullptr, *initial_cell = nullptr;
  float* dstate =
      nullptr;  // [samples, hidden]: of h; becomes the gradient that bypasses the product
  float* dcell = nullptr;  // [samples, hidden]: of c of an LSTM
  T* dx = nullptr;         // [samples, tokens, width]
  T* dz = nullptr;         // [samples, width]: of the product, for this step
  T* dz_all = nullptr;     // [samples, tokens, width]: the same by token; may be dx
};

// Computes units [begin, end) of one sample at one token.
template <typename T>
using RecurrentFunction = void (*)(const RecurrentStep<T>& step, int64_t sample, int64_t token,
                                   int64_t begin, int64_t end);
template <typename T>
using RecurrentBackwardFunction = void (*)(const RecurrentBackwardStep<T>& step, int64_t sample,
                                           int64_t token, int64_t begin, int64_t end);

// The functions of one kind of unit for the instruction set of this processor.
template <typename T>
struct RecurrentFunctions {
  RecurrentFunction<T> forward;
  RecurrentBackwardFunction<T> backward;
};
using AllRecurrentFunctions = std::tuple<RecurrentFunctions<float>, RecurrentFunctions<Bf16>>;
AllRecurrentFunctions all_recurrent_functions(RecurrentKind kind);

}  // namespace dltrain
