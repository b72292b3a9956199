// A libnvidia-ml.so.1 without a driver: the functions that the engine opens, by NVML's reference.
#include "cuda_runtime/stub/nvml.h"

#include <cstring>

namespace {
FakeNvml state;
}  // namespace

extern "C" {

FakeNvml* fake_nvml() {
  return &state;
}

int nvmlInit_v2() {
  if (state.init_code == 0) ++state.open;
  return state.init_code;
}
int nvmlShutdown() {
  --state.open;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  std::strncpy(state.pci_bus, bus, sizeof state.pci_bus - 1);
  *device = &state;
  return state.device_code;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 97;
  gpu_and_memory[1] = 41;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* total_free_used) {
  total_free_used[0] = 141ull << 30;
  total_free_used[1] = 100ull << 30;
  total_free_used[2] = 41ull << 30;
  return 0;
}
int nvmlDeviceGetPcieThroughput(void*, int counter, unsigned* kib_per_second) {
  *kib_per_second = counter == 1 ? 2048 : 512;  // received, transmitted
  return state.sensor_code;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned* celsius) {
  *celsius = sensor == 0 ? 67 : 0;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1410 : 0;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 699'500;
  return state.sensor_code;
}
// The older of the two names, so that both are tried.
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = state.reasons;
  return 0;
}

}  // extern "C"
