#include "compile/gpu.h"

#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/utf8.h"
#include "config/load.h"
#include "config/suggest.h"

namespace dltrain {
namespace {

struct GpuRow {
  const char *name, *alias;
  double gigabytes;
  int64_t multiprocessors;
  double gigabytes_per_second;  // achieved
  double f32, fp16, bf16, fp8;  // TFLOP/s achieved
  double peak_f32, peak_16;     // TFLOP/s of the data sheet, dense
  int64_t fp8_block = 0;
};

// Peaks and multiprocessors are those of NVIDIA's data sheets, memory is what the driver reports.
// Achieved rates: 790 TFLOP/s is the ceiling of dense bf16 products on an H100 (80 % of the peak;
// cuBLAS at 8192³ publishes 716). Products of an A100 reach 88 % of its peak, those of a 4090 all
// of it (its clock is above that of the data sheet), those of L4 and T4 60 % (72 and 70 W). Those
// of FP8 are taken for twice as fast as those of bf16, as in the data sheets. Copies reach 87 to 91
// % of the peak of HBM (BabelStream), 75 % on a T4 (Jia and others 2019).
constexpr std::array kGpus{
    GpuRow{"h100-80g", "h100", 85.0, 132, 3000, 60, 790, 790, 1580, 66.9, 989.4, 128},
    GpuRow{"h200", "", 150.0, 132, 4300, 60, 790, 790, 1580, 66.9, 989.4, 128},
    GpuRow{"a100-80g", "a100", 85.0, 108, 1780, 18.5, 275, 275, 0, 19.5, 312},
    GpuRow{"a100-40g", "", 42.3, 108, 1370, 18.5, 275, 275, 0, 19.5, 312},
    GpuRow{"l4", "", 23.6, 58, 260, 18, 73, 73, 146, 30.3, 121},
    GpuRow{"rtx4090", "4090", 25.3, 128, 920, 65, 165, 165, 330, 82.6, 165.2},
    GpuRow{"t4", "", 15.6, 40, 240, 6, 39, 0, 0, 8.1, 65},
};

Gpu gpu_of(const GpuRow& row) {
  Gpu gpu;
  gpu.name = row.name;
  gpu.memory_bytes = static_cast<int64_t>(1e9 * row.gigabytes);
  gpu.multiprocessors = row.multiprocessors;
  gpu.bytes_per_second = 1e9 * row.gigabytes_per_second;
  gpu.flops_f32 = 1e12 * row.f32;
  gpu.flops_fp16 = 1e12 * row.fp16;
  gpu.flops_bf16 = 1e12 * row.bf16;
  gpu.flops_fp8 = 1e12 * row.fp8;
  gpu.fp8_block = row.fp8_block;
  gpu.peak_flops_f32 = 1e12 * row.peak_f32;
  gpu.peak_flops_16 = 1e12 * row.peak_16;
  return gpu;
}

}  // namespace

void Gpu::describe(Fields& f) {
  f.text("name", name, {.doc = "Name of the GPU", .required = true});
  f.integer("memory_bytes", memory_bytes,
            {.doc = "Memory that a process can allocate, in bytes", .required = true, .min = 1});
  f.integer("multiprocessors", multiprocessors,
            {.doc = "Streaming multiprocessors", .required = true, .min = 1});
  const auto rate = [&](const char* key, double& member, const char* doc) {
    f.number(key, member, {.doc = doc, .required = true, .above = 0});
  };
  rate("bytes_per_second", bytes_per_second, "Bytes per second that a large copy reads and writes");
  rate("flops_f32", flops_f32, "FLOP per second of large f32 products, without TF32");
  f.number("flops_fp16", flops_fp16, {.doc = "The same in fp16; 0: none", .min = 0});
  f.number("flops_bf16", flops_bf16,
           {.doc = "The same in bf16; half of it in TF32; 0: none", .min = 0});
  f.number("flops_fp8", flops_fp8,
           {.doc = "The same in FP8 with a scale for each operand; 0: none", .min = 0});
  f.integer("fp8_block", fp8_block,
            {.doc = "Elements with a scale of their own that such products can have: 128 (sm_90), "
                    "32 (sm_100 and newer) or 0",
             .min = 0});
  rate("peak_flops_f32", peak_flops_f32, "FLOP per second in f32 of the data sheet, for MFU");
  rate("peak_flops_16", peak_flops_16, "The same in fp16 and bf16, dense");
  f.number("launch_seconds", launch_seconds,
           {.doc = "Beginning and end of a kernel in a captured step, in seconds", .min = 0});
}

void Gpu::validate(Diagnostics& diagnostics) const {
  if (fp8_block == 0) return;
  if (fp8_block != 32 && fp8_block != 128) diagnostics.add(*this, "fp8_block", "is 0, 32 or 128");
  if (flops_fp8 == 0) diagnostics.add(*this, "fp8_block", "needs flops_fp8");
}

double Gpu::flops(DType dtype, bool tf32) const {
  if (tf32 && dtype == DType::f32) return flops_bf16 / 2;
  if (dtype == DType::bf16) return flops_bf16;
  if (dtype == DType::u8) return flops_fp8;
  return dtype == DType::f16 ? flops_fp16 : flops_f32;
}

double Gpu::peak_flops(DType dtype, bool tf32) const {
  if (tf32 && dtype == DType::f32) return peak_flops_16 / 2;
  return dtype == DType::bf16 || dtype == DType::f16 ? peak_flops_16 : peak_flops_f32;
}

std::vector<Gpu> find_gpus(const std::string& wanted) {
  std::vector<Gpu> found;
  std::vector<std::string> names;
  const std::string name = lower_ascii(wanted);
  for (const GpuRow& row : kGpus) {
    names.emplace_back(row.name);
    if (name == "all" || name == row.name || (!name.empty() && name == row.alias)) {
      found.push_back(gpu_of(row));
    }
  }
  if (found.empty() && (wanted.ends_with(".yaml") || wanted.ends_with(".yml"))) {
    found.push_back(load_config<Gpu>({.files = {wanted}}));
  }
  if (found.empty()) {
    const std::string near = nearest_name(wanted, names);
    fail(ExitCode::usage, "--gpu {}: there is no such GPU{}; give {}, all or a YAML file", wanted,
         near.empty() ? "" : fmt::format(" (did you mean {}?)", near), join_names(names));
  }
  return found;
}

}  // namespace dltrain
