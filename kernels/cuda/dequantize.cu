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

// `packs`: codes and w are aligned, and no 16 bytes of codes of int8 lie in two rows.
template <typename T, bool kInt8>
__global__ void dequantize_kernel(CodeTables tables, const uint8_t* codes, const void* absmax,
                                  const float* nested, T* w, int64_t count, int64_t columns,
                                  bool packs) {
  __shared__ CodeTables shared;
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += static_cast<int>(blockDim.x)) {
    if (i < 16) shared.nf4[i] = tables.nf4[i];
    shared.dynamic[i] = tables.dynamic[i];
  }
  __syncthreads();
  constexpr int kWidth = kInt8 ? 16 : 32;  // elements of 16 bytes
  const auto expanded = [&](int byte, bool second, float scale) {
    if constexpr (kInt8) return static_cast<float>(static_cast<int8_t>(byte)) * scale * kInt8Step;
    return shared.nf4[second ? byte & 15 : byte >> 4] * scale;
  };
  const auto part = [&]<int N>(int64_t at) {
    const float scale = kInt8 ? static_cast<const float*>(absmax)[at / columns]
                              : nf4_scale(absmax, nested, shared.dynamic, at / kNf4Block);
    constexpr int kEach = kInt8 ? 1 : 2;  // elements of a byte
    if constexpr (N == 1) {
      w[at] = static_cast<T>(expanded(codes[at / kEach], at % 2 != 0, scale));
    } else {
      const auto in =
          *in_global(reinterpret_cast<const Elements<uint8_t, N / kEach>*>(codes + at / kEach));
      DLTRAIN_UNROLL
      for (int first = 0; first < N; first += kStored) {
        float value[kStored];
        DLTRAIN_UNROLL
        for (int j = 0; j < kStored; ++j) {
          value[j] = expanded(in.v[(first + j) / kEach], j % 2 != 0, scale);
        }
        store_elements<T, kStored>(value, w, at + first);
      }
    }
  };
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
      const auto launch = [&](auto kernel, bool packs) {
        DLTRAIN_LAUNCH(kernel, stride_grid(count / 16 + 16, kDequantizeBlock), kDequantizeBlock,
                       stream.native(), tables, b.input<uint8_t>(0), b.inputs[1], b.input<float>(2),
                       b.output<T>(0), count, columns, packs);
      };
      int8 ? launch(dequantize_kernel<T, true>, aligned && columns % 16 == 0)
           : launch(dequantize_kernel<T, false>, aligned);
    });
  });
}

}  // namespace dltrain
