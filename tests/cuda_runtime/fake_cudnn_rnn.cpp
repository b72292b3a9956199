// cuDNN's RNN interface for tests, as documented for cuDNN 9: one layer and one direction, tensors
// with the samples outside, of equal lengths. It refuses what the documents refuse: descriptors
// that do not fit each other, spaces of another size; a backward without its forward, or gradients
// of weights before those of the data, leave rubbish.
#include <algorithm>
#include <cstring>

#include <cudnn_adv.h>

#include "cuda_runtime/fake_rnn_calls.h"
#include "cuda_runtime/fake_runtime.h"

namespace dltrain::fake_cuda {
namespace {

// True when the descriptors of a call belong together and its spaces have the sizes that were asked
// for. The workspace is overwritten when the call runs.
bool fits(const cudnnRNNStruct* rnn, const int32_t* lengths, const cudnnRNNDataStruct* x,
          const cudnnRNNDataStruct* y, const cudnnTensorStruct* h, size_t weight_bytes,
          size_t work_bytes, const void* work) {
  return lengths == nullptr && x->width == rnn->inputs && y->width == rnn->hidden &&
         x->samples == y->samples && x->tokens == y->tokens && x->type == rnn->type &&
         y->type == rnn->type && h->type == rnn->type &&
         h->extent == std::vector<int>{1, x->samples, rnn->hidden} &&
         weight_bytes == RnnLayout(*rnn).total() && work_bytes == kWorkspace && work != nullptr;
}

template <typename T>
T call_of(const cudnnRNNStruct* rnn, const cudnnRNNDataStruct* x, const void* weights) {
  T call;
  call.rnn = *rnn;
  call.x = *x;
  call.weights = const_cast<void*>(weights);
  return call;
}

template <typename T>
cudnnStatus_t queue_call(cudnnHandle_t handle, const T& call, void* work) {
  run_on(stream_of(handle), rnn_time(), [call, work] {
    std::memset(work, 0xff, kWorkspace);
    call();
  });
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t make(T** out) {
  *out = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <typename T>
cudnnStatus_t destroy(T* object) {
  delete object;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace dltrain::fake_cuda

using namespace dltrain::fake_cuda;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* out) {
  return make(out);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t out, cudnnDataType_t type,
                                         int rank, const int extent[], const int stride[]) {
  *out = {type, {extent, extent + rank}, {stride, stride + rank}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int most,
                                         cudnnDataType_t* type, int* rank, int extent[],
                                         int stride[]) {
  *type = tensor->type;
  *rank = static_cast<int>(tensor->extent.size());
  for (int i = 0; i < std::min(most, *rank); ++i) {
    extent[i] = tensor->extent[static_cast<size_t>(i)];
    stride[i] = tensor->stride[static_cast<size_t>(i)];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* out) {
  return make(out);
}
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) {
  return destroy(rnn);
}
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t inputs, int32_t hidden,
                                       int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  if (algorithm != CUDNN_RNN_ALGO_STANDARD || direction != CUDNN_UNIDIRECTIONAL ||
      input != CUDNN_LINEAR_INPUT || precision != CUDNN_DATA_FLOAT || projection != hidden ||
      layers != 1 || dropout != nullptr || flags != CUDNN_RNN_PADDED_IO_ENABLED ||
      (math == CUDNN_TENSOR_OP_MATH) == (type == CUDNN_DATA_FLOAT)) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  *rnn = {mode, type, bias == CUDNN_RNN_DOUBLE_BIAS, inputs, hidden};
  return rnn_time() >= 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t* out) {
  return make(out);
}
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data) {
  return destroy(data);
}
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int tokens, int samples,
                                        int width, const int lengths[], void*) {
  const bool whole =
      std::all_of(lengths, lengths + samples, [&](int length) { return length == tokens; });
  if (layout != CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED || !whole) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  *data = {type, tokens, samples, width};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  *bytes = RnnLayout(*rnn).total();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t* work, size_t* reserve) {
  *work = kWorkspace;
  *reserve =
      mode == CUDNN_FWD_MODE_TRAINING ? call_of<RnnCall>(rnn, x, nullptr).reserve_bytes() : 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t rnn, int32_t layer,
                                      size_t bytes, const void* space, int32_t i,
                                      cudnnTensorDescriptor_t matrix, void** matrix_at,
                                      cudnnTensorDescriptor_t bias, void** bias_at) {
  const RnnLayout layout(*rnn);
  if (layer != 0 || i < 0 || i >= 2 * rnn->gates() || bytes != layout.total()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  auto* base = static_cast<std::byte*>(const_cast<void*>(space));
  const int width = i < rnn->gates() ? rnn->inputs : rnn->hidden;
  *matrix = {rnn->type, {1, rnn->hidden, width}, {rnn->hidden * width, width, 1}};
  *bias = {rnn->type, {1, rnn->hidden, 1}, {rnn->hidden, 1, 1}};
  *matrix_at = base + layout.matrix(i);
  *bias_at = rnn->bias ? base + layout.bias(i) : nullptr;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                              cudnnForwardMode_t mode, const int32_t lengths[],
                              cudnnRNNDataDescriptor_t x, const void* x_data,
                              cudnnRNNDataDescriptor_t y, void* y_data, cudnnTensorDescriptor_t h,
                              const void* hx, void* hy, cudnnTensorDescriptor_t, const void* cx,
                              void* cy, size_t weight_bytes, const void* weights, size_t work_bytes,
                              void* work, size_t reserve_bytes, void* reserve) {
  auto call = call_of<RnnForwardCall>(rnn, x, weights);
  const bool trains = mode == CUDNN_FWD_MODE_TRAINING;
  if (!fits(rnn, lengths, x, y, h, weight_bytes, work_bytes, work) ||
      reserve_bytes != (trains ? call.reserve_bytes() : 0) || trains != (reserve != nullptr)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  call.x_data = x_data;
  call.hx = hx;
  call.cx = cx;
  call.y = y_data;
  call.hy = hy;
  call.cy = cy;
  call.reserve = reserve;
  return queue_call(handle, call, work);
}

cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[],
    cudnnRNNDataDescriptor_t y, const void* y_data, const void* dy, cudnnRNNDataDescriptor_t x,
    void* dx, cudnnTensorDescriptor_t h, const void* hx, const void* dhy, void* dhx,
    cudnnTensorDescriptor_t, const void* cx, const void* dcy, void* dcx, size_t weight_bytes,
    const void* weights, size_t work_bytes, void* work, size_t reserve_bytes, void* reserve) {
  auto call = call_of<RnnDataCall>(rnn, x, weights);
  if (!fits(rnn, lengths, x, y, h, weight_bytes, work_bytes, work) ||
      reserve_bytes != call.reserve_bytes() || dhy != nullptr || dhx != nullptr || dcy != nullptr ||
      dcx != nullptr) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  call.y = y_data;
  call.dy = dy;
  call.hx = hx;
  call.cx = cx;
  call.dx = dx;
  call.reserve = reserve;
  return queue_call(handle, call, work);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const int32_t lengths[],
                                         cudnnRNNDataDescriptor_t x, const void* x_data,
                                         cudnnTensorDescriptor_t h, const void* hx,
                                         cudnnRNNDataDescriptor_t y, const void* y_data,
                                         size_t weight_bytes, void* gradients, size_t work_bytes,
                                         void* work, size_t reserve_bytes, void* reserve) {
  auto call = call_of<RnnWeightsCall>(rnn, x, gradients);
  if (!fits(rnn, lengths, x, y, h, weight_bytes, work_bytes, work) ||
      mode != CUDNN_WGRAD_MODE_ADD || reserve_bytes != call.reserve_bytes()) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  call.x_data = x_data;
  call.hx = hx;
  call.y = y_data;
  call.reserve = reserve;
  return queue_call(handle, call, work);
}

}  // extern "C"
