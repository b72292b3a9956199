// How the tests' cuDNN (fake_cudnn_rnn.cpp) sees recurrent networks: its opaque types, and where
// weights and what it keeps lie. Weights lie as cuDNN may lay them: those of a GRU from the last
// matrix to the first, with gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cudnn_adv.h>

#include "tensor/low_precision.h"

// cuDNN's opaque types.
struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> extent, stride;
};
struct cudnnRNNStruct {
  cudnnRNNMode_t mode = CUDNN_LSTM;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool bias = false;
  int inputs = 0, hidden = 0;
  int gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  size_t element() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
};
struct cudnnRNNDataStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int tokens = 0, samples = 0, width = 0;
};

namespace dltrain::fake_cuda {
inline constexpr size_t kGap = 64, kWorkspace = 4096;
// The first number of the reserve.
inline constexpr double kForwardDone = 1234, kDataDone = 5678;

// A dense tensor of any of the three formats.
struct RnnNumbers {
  cudnnDataType_t type;
  void* data;

  double get(int64_t i) const {
    if (type == CUDNN_DATA_FLOAT) return static_cast<float*>(data)[i];
    return type == CUDNN_DATA_HALF ? to_f32(static_cast<F16*>(data)[i])
                                   : to_f32(static_cast<Bf16*>(data)[i]);
  }
  void set(int64_t i, double value) const {
    const auto narrow = static_cast<float>(value);
    if (type == CUDNN_DATA_FLOAT) {
      static_cast<float*>(data)[i] = narrow;
    } else if (type == CUDNN_DATA_HALF) {
      from_f32(narrow, static_cast<F16*>(data)[i]);
    } else {
      from_f32(narrow, static_cast<Bf16*>(data)[i]);
    }
  }
};

// Bytes before matrix or bias `i` of 2 · gates.
struct RnnLayout {
  explicit RnnLayout(const cudnnRNNStruct& rnn) : rnn_(rnn), count_(2 * rnn.gates()) {}

  int64_t elements(int i) const {
    return int64_t{rnn_.hidden} * (i < rnn_.gates() ? rnn_.inputs : rnn_.hidden);
  }
  size_t matrix(int i) const {
    size_t at = 0;
    for (int k = 0; k < count_; ++k) {
      if (reversed() ? k > i : k < i) at += bytes(elements(k));
    }
    return at;
  }
  size_t bias(int i) const { return all_matrices() + static_cast<size_t>(i) * bytes(rnn_.hidden); }
  size_t total() const {
    return all_matrices() + (rnn_.bias ? static_cast<size_t>(count_) * bytes(rnn_.hidden) : 0);
  }

 private:
  bool reversed() const { return rnn_.mode == CUDNN_GRU; }
  size_t bytes(int64_t elements) const {
    return static_cast<size_t>(elements) * rnn_.element() + (reversed() ? kGap : 0);
  }
  size_t all_matrices() const {
    size_t sum = 0;
    for (int i = 0; i < count_; ++i) sum += bytes(elements(i));
    return sum;
  }

  cudnnRNNStruct rnn_;
  int count_;
};

// One call, with everything that it needs when the stream comes to it.
struct RnnCall {
  cudnnRNNStruct rnn;
  cudnnRNNDataStruct x;
  void* weights = nullptr;

  int G() const { return rnn.gates(); }
  int64_t H() const { return rnn.hidden; }
  int64_t token_row(int64_t sample, int64_t token) const { return sample * x.tokens + token; }
  RnnNumbers of(const void* data) const { return {rnn.type, const_cast<void*>(data)}; }
  RnnNumbers matrix(int i, void* space) const {
    return of(static_cast<std::byte*>(space) + RnnLayout(rnn).matrix(i));
  }
  RnnNumbers bias(int i, void* space) const {
    return of(static_cast<std::byte*>(space) + RnnLayout(rnn).bias(i));
  }

  // The reserve: a mark, then for each token the gates, the cells (GRU: the new gate's product with
  // the state) and, after the backward of the data, the gradients of both products.
  int64_t token_doubles() const { return (3 * G() + 1) * H(); }
  size_t reserve_bytes() const {
    return static_cast<size_t>(1 + token_doubles() * x.samples * x.tokens) * sizeof(double);
  }
  double* gates(void* reserve, int64_t token_row) const {
    return static_cast<double*>(reserve) + 1 + token_row * token_doubles();
  }
  double* cells(void* reserve, int64_t token_row) const {
    return gates(reserve, token_row) + G() * H();
  }
  double* to_input(void* reserve, int64_t token_row) const {
    return cells(reserve, token_row) + H();
  }
  double* to_state(void* reserve, int64_t token_row) const {
    return to_input(reserve, token_row) + G() * H();
  }
};

}  // namespace dltrain::fake_cuda
