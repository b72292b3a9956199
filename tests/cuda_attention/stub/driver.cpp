// A driver library for tests: cuDNN looks for libcuda.so.1 when it prepares attention, asks whether
// its functions are there, and gives it the code that it has made. Every call succeeds and does
// nothing. CUDA's own runtime finds no GPU with it, as without a driver.
namespace {

constexpr int kSuccess = 0, kNotFound = 500;
char object[64];  // what every handle points to

}  // namespace

extern "C" {

// Makers: the first argument takes a handle.
#define DLTRAIN_MAKES(name) \
  int name(void** out) {    \
    *out = object;          \
    return kSuccess;        \
  }
DLTRAIN_MAKES(cuCtxGetCurrent)
DLTRAIN_MAKES(cuCtxPopCurrent)
DLTRAIN_MAKES(cuDevicePrimaryCtxRetain)
DLTRAIN_MAKES(cuLibraryGetKernel)
DLTRAIN_MAKES(cuLibraryLoadData)
DLTRAIN_MAKES(cuLibraryLoadFromFile)
DLTRAIN_MAKES(cuLinkCreate)
DLTRAIN_MAKES(cuLinkCreate_v2)
DLTRAIN_MAKES(cuModuleGetFunction)
DLTRAIN_MAKES(cuModuleGetGlobal_v2)
DLTRAIN_MAKES(cuModuleLoadData)
DLTRAIN_MAKES(cuModuleLoadDataEx)
DLTRAIN_MAKES(cuModuleLoadFatBinary)

// Questions: the first argument takes a number.
#define DLTRAIN_SAYS(name, number) \
  int name(int* out) {             \
    *out = number;                 \
    return kSuccess;               \
  }
DLTRAIN_SAYS(cuCtxGetDevice, 0)
DLTRAIN_SAYS(cuDeviceGet, 0)
DLTRAIN_SAYS(cuFuncGetAttribute, 0)
DLTRAIN_SAYS(cuKernelGetAttribute, 0)
DLTRAIN_SAYS(cuDriverGetVersion, 13000)
DLTRAIN_SAYS(cuDeviceGetCount, 1)

int cuDeviceGetAttribute(int* out, int attribute, int) {
  *out = attribute == 75 ? 9 : attribute == 76 ? 0 : 1;  // compute capability 9.0
  return kSuccess;
}
int cuGetErrorName(int, const char** text) {
  *text = "a stub";
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "a stub";
  return kSuccess;
}

// The part of a real driver that CUDA's runtime needs.
int cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}

#define DLTRAIN_DOES_NOTHING(name) \
  int name() {                     \
    return kSuccess;               \
  }
DLTRAIN_DOES_NOTHING(cuCtxGetLimit)
DLTRAIN_DOES_NOTHING(cuCtxPushCurrent)
DLTRAIN_DOES_NOTHING(cuDevicePrimaryCtxRelease)
DLTRAIN_DOES_NOTHING(cuDevicePrimaryCtxReset)
DLTRAIN_DOES_NOTHING(cuFuncSetAttribute)
DLTRAIN_DOES_NOTHING(cuInit)
DLTRAIN_DOES_NOTHING(cuKernelSetAttribute)
DLTRAIN_DOES_NOTHING(cuLaunchCooperativeKernel)
DLTRAIN_DOES_NOTHING(cuLaunchKernel)
DLTRAIN_DOES_NOTHING(cuLaunchKernelEx)
DLTRAIN_DOES_NOTHING(cuLibraryUnload)
DLTRAIN_DOES_NOTHING(cuLinkAddData)
DLTRAIN_DOES_NOTHING(cuLinkAddData_v2)
DLTRAIN_DOES_NOTHING(cuLinkAddFile_v2)
DLTRAIN_DOES_NOTHING(cuLinkComplete)
DLTRAIN_DOES_NOTHING(cuLinkDestroy)
DLTRAIN_DOES_NOTHING(cuMemcpyDtoH_v2)
DLTRAIN_DOES_NOTHING(cuModuleUnload)
DLTRAIN_DOES_NOTHING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
DLTRAIN_DOES_NOTHING(cuOccupancyMaxPotentialClusterSize)
DLTRAIN_DOES_NOTHING(cuStreamGetCtx)
DLTRAIN_DOES_NOTHING(cuStreamSynchronize)
DLTRAIN_DOES_NOTHING(cuTensorMapEncodeTiled)

}  // extern "C"
