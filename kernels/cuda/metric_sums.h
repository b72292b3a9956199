// Queues the sums that metrics are made of (lib/ops/metric_sums.cpp). dtype: f32 or f64 of outputs
// and floating targets; sums are f64.
#pragma once

#include "cuda/launch.h"
#include "tensor/dtype.h"

namespace dltrain {

struct MetricCall {
  enum class Kind : uint8_t { confusion, top_k, regression, binary } kind = Kind::confusion;
  DType dtype = DType::f32;
  int64_t rows = 0;   // of labels; of numbers: samples
  int64_t width = 0;  // classes, or numbers a sample
  int64_t k = 1;
  bool accumulate = false;

  int64_t sums() const {
    switch (kind) {
      case Kind::confusion:
        return width * width;
      case Kind::top_k:
        return 1;
      case Kind::regression:
        return 5 * width;
      case Kind::binary:
        return 4 * width;
    }
    return 0;
  }
};

void launch_metric_sums(const MetricCall& call, const void* x, const void* targets, double* sums,
                        CudaStream stream);

}  // namespace dltrain
