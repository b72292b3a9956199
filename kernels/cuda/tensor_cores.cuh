// Tiles of 16×16 elements in the registers of a warp, whose products tensor cores compute: operands
// of bf16 or fp16, sums in f32 (instructions ldmatrix and mma.m16n8k16 of PTX, from sm_80 on). All
// lanes of the warp call each function with the same arguments. Operands are in shared memory,
// with rows of a multiple of 16 bytes. In the emulation the first lane has the whole tile. Included
// by .cu files only.
#pragma once

#include "cuda/device_code.cuh"

namespace dltrain {

inline constexpr int kTensorTile = 16;

// A tile of the left (Left) or right operand: four matrices of 8×8, those of one half of the kept
// axis first on the left, of the summed axis on the right. `Inner`: elements along the axis that is
// summed over are neighbours in memory.
template <typename T, bool Left, bool Inner>
struct OperandTile {
#if defined(DLTRAIN_CUDA_EMULATION)
  float elements[kTensorTile][kTensorTile];  // of the kept axis first
#else
  uint32_t words[4];
#endif

  // `stride`: elements between rows. Each lane has the address of a row of a matrix.
  __device__ void load(const T* from, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#if defined(DLTRAIN_CUDA_EMULATION)
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || stride % 8 != 0) __builtin_trap();
    if (lane > 0) return;
    for (int i = 0; i < kTensorTile; ++i) {
      for (int l = 0; l < kTensorTile; ++l) {
        elements[i][l] = static_cast<float>(Inner ? from[i * stride + l] : from[l * stride + i]);
      }
    }
#else
    const int first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    const int kept = Left ? first : second, summed = Left ? second : first;
    const T* row =
        from + (Inner ? (kept + lane % 8) * stride + summed : (summed + lane % 8) * stride + kept);
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    if constexpr (Inner) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                   : "r"(address)
                   : "memory");
    }
#endif
  }
};

#if !defined(DLTRAIN_CUDA_EMULATION)
// The 16×8 sums d += a·b of words of operands; nothing before sm_80.
template <typename T>
__device__ void add_half_product(const uint32_t* a, const uint32_t* b, float* d) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, DeviceBf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}
#endif

// A lane has two neighbours of a row, of the row 8 below, and the same 8 columns to the right.
class SumTile {
 public:
  __device__ void clear() {
    for (float& sum : sums_) sum = 0;
  }
  template <typename T, bool InnerA, bool InnerB>
  __device__ void add_product(const OperandTile<T, true, InnerA>& a,
                              const OperandTile<T, false, InnerB>& b) {
#if defined(DLTRAIN_CUDA_EMULATION)
    if (threadIdx.x % kWarp != 0) return;
    for (int i = 0; i < kSums; ++i) {
      const float *left = a.elements[i / kTensorTile], *right = b.elements[i % kTensorTile];
      for (int l = 0; l < kTensorTile; ++l) sums_[i] += left[l] * right[l];
    }
#else
    for (int half = 0; half < 2; ++half) {
      add_half_product<T>(a.words, b.words + 2 * half, sums_ + 4 * half);
    }
#endif
  }
  __device__ void store(float* to, int stride) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#if defined(DLTRAIN_CUDA_EMULATION)
    if (lane > 0) return;
    for (int i = 0; i < kSums; ++i) to[i / kTensorTile * stride + i % kTensorTile] = sums_[i];
#else
    float* first = to + lane / 4 * stride + lane % 4 * 2;
    for (int i = 0; i < kSums; i += 2) {
      *reinterpret_cast<Elements<float, 2>*>(first + i / 2 % 2 * 8 * stride + i / 4 * 8) = {
          sums_[i], sums_[i + 1]};
    }
#endif
  }

 private:
#if defined(DLTRAIN_CUDA_EMULATION)
  static constexpr int kSums = kTensorTile * kTensorTile;
#else
  static constexpr int kSums = kTensorTile * kTensorTile / kWarp;
#endif
  float sums_[kSums];
};

}  // namespace dltrain
