// dequantize: a thread loads 16 bytes of codes, 32 elements of nf4 or 16 of int8, and stores 8 of
// them at a time. The tables lie in shared memory, where lanes may read different entries.
#include "cuda/device_code.cuh"
#include "cuda/makers.h"
#include "shared/make_kernel.h"
#include "tensor/block_codes.h"
#include "tensor/weight_codes.h"

namespace dltrain {
namespace {

constexpr int kDequantizeBlock = 256;
constexpr int kStored = 8;  // elements

struct CodeTables {
  float nf4[16];
  float dynamic[256];
};

CodeTables code_tables() {
  CodeTables out{};
  for (size_t i = 0; i < 16; ++i) out.nf4[i] = kNf4Codes[i];
  const auto table = dynamic_codes(true);
  for (size_t i = 0; i < 256; ++i) out.dynamic[i] = table[i];
  return out;
}

// `packs`: codes and w are aligned.
template <typename T>
__global__ void nf4_kernel(CodeTables tables, const uint8_t* codes, const void* absmax,
                           const float* nested, T* w, int64_t count, bool packs) {
  __shared__ CodeTables shared;
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += static_cast<int>(blockDim.x)) {
    if (i < 16) shared.nf4[i] = tables.nf4[i];
    shared.dynamic[i] = tables.dynamic[i];
  }
  __syncthreads();
  const auto part = [&]<int N>(int64_t at) {
    const float scale = nf4_scale(absmax, nested, shared.dynamic, at / kNf4Block);
    if constexpr (N == 1) {
      const int code = at % 2 == 0 ? codes[at / 2] >> 4 : codes[at / 2] & 15;
      w[at] = static_cast<T>(shared.nf4[code] * scale);
    } else {
      const auto in = *in_global(reinterpret_cast<const Elements<uint8_t, N / 2>*>(codes + at / 2));
      DLTRAIN_UNROLL
      for (int first = 0; first < N; first += kStored) {
        float value[kStored];
        DLTRAIN_UNROLL
        for (int j = 0; j < kStored; j += 2) {
          const int byte = in.v[(first + j) / 2];
          value[j] = shared.nf4[byte >> 4] * scale;
          value[j + 1] = shared.nf4[byte & 15] * scale;
        }
        store_elements<T, kStored>(value, w, at + first);
      }
    }
  };
  constexpr int kWidth = 32;
  sweep_elements<kWidth>(packs ? count / kWidth : 0, count, thread_index(), thread_count(), part);
}

// `packs`: rows are multiples of 16 elements, too.
template <typename T>
__global__ void int8_kernel(const int8_t* codes, const float* absmax, T* w, int64_t count,
                            int64_t columns, bool packs) {
  const auto part = [&]<int N>(int64_t at) {
    const float most = absmax[at / columns];
    if constexpr (N == 1) {
      w[at] = static_cast<T>(static_cast<float>(codes[at]) * most * kInt8Step);
    } else {
      const auto in = *in_global(reinterpret_cast<const Elements<int8_t, N>*>(codes + at));
      DLTRAIN_UNROLL
      for (int first = 0; first < N; first += kStored) {
        float value[kStored];
        DLTRAIN_UNROLL
        for (int j = 0; j < kStored; ++j) {
          value[j] = static_cast<float>(in.v[first + j]) * most * kInt8Step;
        }
        store_elements<T, kStored>(value, w, at + first);
      }
    }
  };
  constexpr int kWidth = 16;
  sweep_elements<kWidth>(packs ? count / kWidth : 0, count, thread_index(), thread_count(), part);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_dequantize(const KernelRequest& request) {
  const TensorSpec& w = request.outputs[0];
  if (request.inputs.back().dtype != DType::f32) return nullptr;
  return make_kernel([dtype = w.dtype, int8 = request.attributes.text("format") == "int8",
                      count = w.shape.elements(), columns = w.shape[1],
                      tables = code_tables()](const Bindings& b, Stream& stream) {
    if (count == 0) return;
    const bool aligned = is_pack_aligned(b.inputs[0]) && is_pack_aligned(b.outputs[0]);
    with_floating(dtype, [&]<typename T>(T) {
      if (int8) {
        DLTRAIN_LAUNCH(int8_kernel<T>, stride_grid(count / 16 + 16, kDequantizeBlock),
                       kDequantizeBlock, stream.native(), b.input<int8_t>(0), b.input<float>(1),
                       b.output<T>(0), count, columns, aligned && columns % 16 == 0);
      } else {
        DLTRAIN_LAUNCH(nf4_kernel<T>, stride_grid(count / 32 + 32, kDequantizeBlock),
                       kDequantizeBlock, stream.native(), tables, b.input<uint8_t>(0), b.inputs[1],
                       b.input<float>(2), b.output<T>(0), count, aligned);
      }
    });
  });
}

}  // namespace dltrain
