// Queues the ops of the update segment (lib/ops/update.cpp). One launch serves all tensors of an
// op: a table in device memory, built when addresses become known, cuts them into chunks of fixed
// size, one block each.
#pragma once

#include "cuda/launch.h"
#include "ops/step_state.h"
#include "shared/element_rules.h"
#include "shared/state_rules.h"
#include "tensor/dtype.h"

namespace dltrain {

inline constexpr int64_t kUpdateChunk = 8192;  // elements

// Up to kUpdateChunk elements of one tensor of every role: parameter, gradient, moments.
struct UpdateChunk {
  void* role[5];
  int64_t count;
  int64_t tensor;       // which of the op's tensors
  void* copy;           // of the parameters in 16 bits, or nullptr
  int64_t first;        // element of the tensor at which it begins
  uint64_t stream;      // of the rounding, with UpdateTable::rounds
  GroupSettings group;  // of that tensor
};

struct UpdateTable {
  const UpdateChunk* chunks = nullptr;  // device memory
  int64_t count = 0;
  DType dtype = DType::f32;  // of every tensor (of the parameters, for copies): f32 or f64
  DType copy = DType::bf16;  // of UpdateChunk::copy: bf16 or f16
  // Parameters (role 0) are bf16 and rounded at random; the other roles are f32.
  bool rounds = false;
};

// Writes StepState.out. Role 0 is the gradient; `partial` has table.count doubles.
void launch_gradient_norm(const UpdateTable& table, StepState* state, double* partial,
                          CudaStream stream);
// sum_of_squares. Role 0 is x; `partial` has table.count doubles.
void launch_sum_of_squares(const UpdateTable& table, double* sum, double* partial,
                           CudaStream stream);
void launch_gradient_norm_of(StepState* state, const double* sum_of_squares, CudaStream stream);
// An optimizer of shared/element_rules.h. Roles: parameter, gradient, the rule's moments.
template <typename Rule>
void launch_element_update(const UpdateTable& table, const Rule& rule, const StepState* state,
                           CudaStream stream);

// low_precision_update. Roles: parameter, copy; `copy`: bf16 or f16.
void launch_low_precision_update(const UpdateTable& table, DType copy, CudaStream stream);

// ema_update. Roles: source, average.
void launch_ema_update(const UpdateTable& table, const EmaAttributes& attributes,
                       const StepState* state, CudaStream stream);

void launch_clip_percentile(const ClipPercentileAttributes& attributes, StepState* state,
                            float* norms, int64_t window, CudaStream stream);

struct BatchNormUpdateCall {
  DType dtype = DType::f32;
  int64_t channels = 0;
  double momentum = 0.1, groups = 1, unbias = 1;
};
void launch_batch_norm_update(const BatchNormUpdateCall& call, const StepState* state,
                              void* running_mean, void* running_variance, const void* mean_sum,
                              const void* variance_sum, CudaStream stream);

// `loss` may be nullptr; a loss that is not finite makes the seed NaN.
void launch_loss_seed(const StepState* state, const double* loss, double* seed, CudaStream stream);

}  // namespace dltrain
