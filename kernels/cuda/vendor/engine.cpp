// The plug-in's entry: libdltrain_cuda.so exports this function and nothing else.
#include "device/engine.h"

#include <vector>

#include "cuda/makers.h"
#include "cuda/tables.h"
#include "cuda/vendor/device.h"
#if defined(DLTRAIN_NCCL)
#include "cuda/vendor/nccl.h"
#endif

namespace dltrain {
namespace {

std::unique_ptr<Device> open_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

const VendorCollectives* offered_collectives() {
#if defined(DLTRAIN_NCCL)
  return nccl_collectives();
#else
  return nullptr;
#endif
}

// Vendor rows are first; own kernels serve the remaining requests.
const std::vector<KernelRow>& kernel_table() {
  static const std::vector<KernelRow> table = [] {
    std::vector<KernelRow> rows(cuda_vendor_rows().begin(), cuda_vendor_rows().end());
    rows.insert(rows.end(), cuda_own_rows().begin(), cuda_own_rows().end());
    return rows;
  }();
  return table;
}

}  // namespace

const Engine& cuda_engine() {
  static const Engine engine{.name = "cuda",
                             .kernels = kernel_table().data(),
                             .kernel_count = kernel_table().size(),
                             .device_count = cuda_device_count,
                             .problem = cuda_problem,
                             .open = open_device,
                             .collectives = offered_collectives(),
                             .libraries = cuda_libraries};
  return engine;
}

}  // namespace dltrain

extern "C" const dltrain::Engine* dltrain_engine(uint32_t abi) {
  using namespace dltrain;
  if (abi != kEngineAbi) return nullptr;
  return &cuda_engine();
}
