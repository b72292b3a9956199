// Queues embedding and its gradient (lib/ops/embedding.cpp). weight and y have `dtype`: f32, f64,
// bf16 or f16.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct EmbeddingCall {
  DType dtype = DType::f32;
  int64_t ids = 0;      // looked up; less than 2³¹
  int64_t rows = 0;     // of weight; less than 2³¹
  int64_t columns = 0;  // of weight
  int64_t padding_idx = -1;
  bool accumulate = false;  // dweight += …
};

void launch_embedding(const EmbeddingCall& call, const int32_t* ids, const void* weight, void* y,
                      CudaStream stream);

// 32-bit numbers.
int64_t embedding_workspace_elements(const EmbeddingCall& call);

// dweight [rows, columns] has the accumulation dtype of dy [ids, columns].
void launch_embedding_backward(const EmbeddingCall& call, const int32_t* ids, const void* dy,
                               void* dweight, int32_t* workspace, CudaStream stream);

}  // namespace dltrain
