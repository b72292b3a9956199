#include "cuda/vendor/cudnn_rnn.h"

#include <limits>

#include "base/error.h"
#include "cuda/vendor/cudnn_descriptor.h"

namespace dltrain {
namespace {

// In the order of RecurrentKind.
constexpr cudnnRNNMode_t kModes[] = {CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH, CUDNN_RNN_RELU};

// Returns the product of all extents that cuDNN reports for a matrix or bias.
int64_t elements_of(cudnnTensorDescriptor_t tensor) {
  constexpr int kMax = 8;
  cudnnDataType_t type;
  int rank = 0, extent[kMax] = {}, stride[kMax] = {};
  check_cudnn(cudnnGetTensorNdDescriptor(tensor, kMax, &type, &rank, extent, stride),
              "reading the extents of recurrent weights");
  int64_t product = rank > 0 ? 1 : 0;
  for (int i = 0; i < rank && i < kMax; ++i) product *= extent[i];
  return product;
}

void add_piece(std::vector<CudnnRnn::Piece>& pieces, const CudnnRnn::Piece& piece, size_t element) {
  if (!pieces.empty()) {
    CudnnRnn::Piece& last = pieces.back();
    if (last.operand == piece.operand && last.begin + last.count == piece.begin &&
        last.offset + static_cast<size_t>(last.count) * element == piece.offset) {
      last.count += piece.count;
      return;
    }
  }
  pieces.push_back(piece);
}

}  // namespace

CudnnRnn::CudnnRnn(const RnnProblem& p) : problem_(p) {
  constexpr const char* kWhat = "describing a recurrent network";
  const auto type = cudnn_type(p.dtype);
  const auto inputs = static_cast<int>(p.inputs), hidden = static_cast<int>(p.hidden),
             samples = static_cast<int>(p.samples), tokens = static_cast<int>(p.tokens);
  check_cudnn(cudnnCreateRNNDescriptor(rnn_.out()), "making a recurrent network");
  check_cudnn(cudnnCreateRNNDataDescriptor(x_.out()), "describing recurrent inputs");
  check_cudnn(cudnnCreateRNNDataDescriptor(y_.out()), "describing recurrent outputs");
  check_cudnn(cudnnCreateTensorDescriptor(state_.out()), "describing a recurrent state");
  // As elsewhere f32 is plain f32 unless TF32 is asked for. Tensors with samples as the first axis
  // need padded input and output, although all sequences have the same length.
  const cudnnMathType_t math = p.dtype != DType::f32 ? CUDNN_TENSOR_OP_MATH
                               : p.tf32              ? CUDNN_DEFAULT_MATH
                                                     : CUDNN_FMA_MATH;
  check_cudnn(cudnnSetRNNDescriptor_v8(
                  rnn_, CUDNN_RNN_ALGO_STANDARD, kModes[static_cast<size_t>(p.kind)],
                  p.bias ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS, CUDNN_UNIDIRECTIONAL,
                  CUDNN_LINEAR_INPUT, type, CUDNN_DATA_FLOAT, math, inputs, hidden, hidden, 1,
                  nullptr, CUDNN_RNN_PADDED_IO_ENABLED),
              kWhat);
  const std::vector<int> lengths(static_cast<size_t>(samples), tokens);
  const auto describe = [&](cudnnRNNDataDescriptor_t data, int width) {
    check_cudnn(cudnnSetRNNDataDescriptor(data, type, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                                          tokens, samples, width, lengths.data(), nullptr),
                kWhat);
  };
  describe(x_, inputs);
  describe(y_, hidden);
  const int extents[] = {1, samples, hidden}, strides[] = {samples * hidden, hidden, 1};
  check_cudnn(cudnnSetTensorNdDescriptor(state_, type, 3, extents, strides), kWhat);
}

std::optional<CudnnRnn> CudnnRnn::describe(const RnnProblem& p) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  if (p.samples * p.hidden > kMax || p.tokens > kMax || p.inputs > kMax) return {};
  return CudnnRnn(p);
}

CudnnRnn::Sizes CudnnRnn::sizes(cudnnHandle_t handle, cudnnForwardMode_t mode) const {
  constexpr const char* kWhat = "reading the sizes of a recurrent network";
  Sizes out;
  check_cudnn(cudnnGetRNNWeightSpaceSize(handle, rnn_, &out.weights), kWhat);
  check_cudnn(cudnnGetRNNTempSpaceSizes(handle, rnn_, mode, x_, &out.workspace, &out.reserve),
              kWhat);
  return out;
}

// Matrices of the gates for the inputs come first, then those for the state, in PyTorch's order:
// i, f, g, o of an LSTM; r, z, n of a GRU.
std::vector<CudnnRnn::Piece> CudnnRnn::pieces(cudnnHandle_t handle, size_t bytes,
                                              const void* weights) const {
  Handle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor> matrix, bias;
  check_cudnn(cudnnCreateTensorDescriptor(matrix.out()), "describing recurrent weights");
  check_cudnn(cudnnCreateTensorDescriptor(bias.out()), "describing recurrent weights");
  const int64_t gates = problem_.gates(), hidden = problem_.hidden;
  const size_t element = dtype_size(problem_.dtype);
  std::vector<Piece> matrices, biases;
  const auto add = [&](std::vector<Piece>& list, Piece::Operand operand, int64_t gate,
                       int64_t count, cudnnTensorDescriptor_t found, const void* at) {
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(at) -
                                            static_cast<const std::byte*>(weights));
    check_internal(at != nullptr && elements_of(found) == count &&
                       offset + static_cast<size_t>(count) * element <= bytes,
                   "cuDNN has {} elements of a gate's weights, not {}", elements_of(found), count);
    add_piece(list, {operand, gate * count, count, offset}, element);
  };
  for (int64_t i = 0; i < 2 * gates; ++i) {
    const bool of_input = i < gates;
    void *matrix_at = nullptr, *bias_at = nullptr;
    check_cudnn(cudnnGetRNNWeightParams(handle, rnn_, 0, bytes, weights, static_cast<int32_t>(i),
                                        matrix, &matrix_at, bias, &bias_at),
                "finding recurrent weights");
    const int64_t gate = of_input ? i : i - gates, width = of_input ? problem_.inputs : hidden;
    add(matrices, of_input ? Piece::w_ih : Piece::w_hh, gate, hidden * width, matrix, matrix_at);
    if (!problem_.bias) continue;
    add(biases, of_input ? Piece::b_ih : Piece::b_hh, gate, hidden, bias, bias_at);
  }
  matrices.insert(matrices.end(), biases.begin(), biases.end());
  return matrices;
}

}  // namespace dltrain
