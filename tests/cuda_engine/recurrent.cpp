// cuDNN itself takes the descriptors of recurrent networks that the engine makes; the sizes of its
// spaces need a GPU.
#include "catch.h"
#include "cuda/vendor/cudnn_rnn.h"

namespace dltrain {
namespace {

TEST_CASE("cuDNN takes recurrent networks of every kind and format") {
  for (const RecurrentKind kind : {RecurrentKind::lstm, RecurrentKind::gru, RecurrentKind::rnn_tanh,
                                   RecurrentKind::rnn_relu}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const bool bias : {false, true}) {
        const auto rnn = CudnnRnn::describe({.kind = kind,
                                             .dtype = dtype,
                                             .bias = bias,
                                             .samples = 3,
                                             .tokens = 5,
                                             .inputs = 7,
                                             .hidden = 19});
        REQUIRE(rnn.has_value());
        int extent[3] = {}, stride[3] = {}, rank = 0;
        cudnnDataType_t type;
        REQUIRE(cudnnGetTensorNdDescriptor(rnn->state(), 3, &type, &rank, extent, stride) ==
                CUDNN_STATUS_SUCCESS);
        CHECK((rank == 3 && extent[0] == 1 && extent[1] == 3 && extent[2] == 19));
      }
    }
  }
}

TEST_CASE("what cuDNN cannot count is left to the engine's own kernels") {
  CHECK_FALSE(
      CudnnRnn::describe({.samples = 1 << 16, .tokens = 1, .inputs = 1, .hidden = 1 << 15}));
  CHECK_FALSE(
      CudnnRnn::describe({.samples = 1, .tokens = int64_t{1} << 31, .inputs = 1, .hidden = 1}));
}

}  // namespace
}  // namespace dltrain
