// Queues the ops of texts in slots (lib/ops/decoding.cpp) and of recurrent state between batches
// (lib/ops/carry.cpp): copies of rows whose places stand in device memory. Of any dtype; rows are
// so many bytes.
#pragma once

#include "cuda/launch.h"
#include "ops/step_state.h"

namespace dltrain {

// y[samples, tokens]: positions[n] + token, at most limit − 1.
void launch_token_positions(const int32_t* positions, int64_t samples, int64_t tokens,
                            int64_t limit, int32_t* y, CudaStream stream);

struct RowCopy {
  int64_t samples = 0, tokens = 1, row_bytes = 0;
};

// y[n] = x[n, counts[n] − 1], or x[n, 0] where nothing is there.
void launch_last_token(const RowCopy& copy, const void* x, const int32_t* counts, void* y,
                       CudaStream stream);
// y[n] = state[slots[n]], or 0 where positions[n] is 0.
void launch_slot_state(const RowCopy& copy, const void* state, const int32_t* positions,
                       const int32_t* slots, void* y, CudaStream stream);
// state[slots[n]] = y[n, counts[n] − 1] where counts[n] > 0.
void launch_slot_state_update(const RowCopy& copy, void* state, const void* y,
                              const int32_t* counts, const int32_t* slots, CudaStream stream);

// Rows of a micro-batch among `rows` of all streams.
struct CarryCall {
  int64_t samples = 0, rows = 0, row_bytes = 0;
  int64_t steps = 1;  // carried_state: streams begin where the step is a multiple
};
void launch_carried_state(const CarryCall& call, const StepState* step, const void* state, void* y,
                          CudaStream stream);
// With `others_zero` the rows of other micro-batches become zero, else they stay.
void launch_carry_state(const CarryCall& call, const StepState* step, const void* x, void* state,
                        bool others_zero, CudaStream stream);
// Where the step is finite.
void launch_carried_update(int64_t bytes, const StepState* step, const void* next, void* state,
                           CudaStream stream);

}  // namespace dltrain
