// Descriptions of GPUs, for plans and estimates without the hardware.
#pragma once

#include <string>
#include <vector>

#include "config/fields.h"
#include "tensor/dtype.h"

namespace dltrain {

// An estimate of the bytes of a described GPU that the driver and the vendor libraries take.
inline constexpr uint64_t kDescribedGpuReserve = uint64_t{1} << 30;

struct Gpu : ConfigObject {
  std::string name;
  int64_t memory_bytes = 0;  // that a process can allocate, by the driver
  int64_t multiprocessors = 0;
  double bytes_per_second = 0;  // that a large copy achieves, read and written together
  // FLOP/s that large dense matrix products achieve, with sums in f32; 0: no such products.
  double flops_f32 = 0, flops_fp16 = 0, flops_bf16 = 0, flops_fp8 = 0;
  int64_t fp8_block = 0;  // codes with a scale of their own that products of FP8 can have
  double peak_flops_f32 = 0, peak_flops_16 = 0;  // of the data sheet, for MFU
  double launch_seconds = 2e-6;                  // beginning and end of a kernel

  void describe(Fields& f);
  void validate(Diagnostics& diagnostics) const;
  // `tf32`: of products of f32 operands that are rounded to TF32, at half the rate of bf16, as on
  // every GPU since sm_80. u8: of codes of FP8.
  double flops(DType dtype, bool tf32 = false) const;
  double peak_flops(DType dtype, bool tf32 = false) const;
};

// Returns the GPU of this name or alias, all GPUs of the table for "all", or the GPU of a YAML
// file. Throws Error(usage).
std::vector<Gpu> find_gpus(const std::string& wanted);

}  // namespace dltrain
