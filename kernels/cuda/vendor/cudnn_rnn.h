// One layer and one direction (from the first token to the last) of a recurrent network by cuDNN's
// RNN interface (cudnn_adv.h): descriptors, required bytes, and the places of the weights in
// cuDNN's memory. Used by cudnn_recurrent.cpp; creating descriptors needs no GPU, sizes need a
// handle.
#pragma once

#include <optional>
#include <vector>

#include <cudnn_adv.h>

#include "cuda/vendor/check.h"
#include "ops/recurrent.h"
#include "tensor/dtype.h"

namespace dltrain {

struct RnnProblem {
  RecurrentKind kind = RecurrentKind::lstm;
  DType dtype = DType::f32;  // of all tensors: f32, bf16 or f16; sums are f32
  bool tf32 = false;         // products of f32 on tensor cores
  bool bias = false;         // b_ih and b_hh
  int64_t samples = 0, tokens = 0, inputs = 0, hidden = 0;

  int64_t gates() const { return recurrent_gates(kind); }
};

class CudnnRnn {
 public:
  // Returns nullopt if cuDNN cannot count the problem's elements; throws KernelRefused if it does
  // not support it.
  static std::optional<CudnnRnn> describe(const RnnProblem& problem);

  // Bytes of the weights, of the workspace and of the data that the forward of training keeps.
  struct Sizes {
    size_t weights = 0, workspace = 0, reserve = 0;
  };
  Sizes sizes(cudnnHandle_t handle, cudnnForwardMode_t mode) const;

  // A piece of an operand: its `count` elements from `begin` on, at byte `offset` of the weights.
  struct Piece {
    enum Operand : uint8_t { w_ih, w_hh, b_ih, b_hh } operand;
    int64_t begin, count;
    size_t offset;
  };
  // Returns the pieces, adjacent ones merged. `weights`: their memory, which is not read.
  std::vector<Piece> pieces(cudnnHandle_t handle, size_t bytes, const void* weights) const;

  const RnnProblem& problem() const { return problem_; }
  cudnnRNNDescriptor_t rnn() const { return rnn_; }
  cudnnRNNDataDescriptor_t x() const { return x_; }         // [samples, tokens, inputs], dense
  cudnnRNNDataDescriptor_t y() const { return y_; }         // [samples, tokens, hidden]
  cudnnTensorDescriptor_t state() const { return state_; }  // [1, samples, hidden]

 private:
  explicit CudnnRnn(const RnnProblem& problem);

  RnnProblem problem_;
  Handle<cudnnRNNDescriptor_t, cudnnDestroyRNNDescriptor> rnn_;
  Handle<cudnnRNNDataDescriptor_t, cudnnDestroyRNNDataDescriptor> x_, y_;
  Handle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor> state_;
};

}  // namespace dltrain
