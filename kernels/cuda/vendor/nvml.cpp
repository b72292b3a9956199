#include "cuda/vendor/nvml.h"

#include <cstdint>

#include <dlfcn.h>

namespace dltrain {
namespace {

// The used parts of NVML's documented interface (NVML API Reference).
using NvmlDevice = struct NvmlDeviceObject*;
using NvmlReturn = int;  // 0: success

struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;  // bytes
};

constexpr int kTemperatureGpu = 0;
constexpr int kClockSm = 1;
constexpr int kPcieTransmitted = 0, kPcieReceived = 1;  // by the GPU

// nvmlClocksThrottleReasons.
constexpr unsigned long long kPowerCap = 0x04, kHardwareSlowdown = 0x08, kSoftwareHeat = 0x20,
                             kHardwareHeat = 0x40, kPowerBrake = 0x80;

// A function of the library; some versions may not have it.
template <typename... Arguments>
class Function {
 public:
  void load(void* library, const char* name, const char* other_name = nullptr) {
    void* address = dlsym(library, name);
    if (address == nullptr && other_name != nullptr) address = dlsym(library, other_name);
    call_ = reinterpret_cast<NvmlReturn (*)(Arguments...)>(address);
  }
  explicit operator bool() const { return call_ != nullptr; }
  bool operator()(Arguments... arguments) const {
    return call_ != nullptr && call_(arguments...) == 0;
  }

 private:
  NvmlReturn (*call_)(Arguments...) = nullptr;
};

struct NvmlLibrary {
  void* handle = nullptr;
  Function<> init, shutdown;
  Function<const char*, NvmlDevice*> device_by_pci;
  Function<NvmlDevice, NvmlUtilization*> utilization;
  Function<NvmlDevice, NvmlMemory*> memory;
  Function<NvmlDevice, int, unsigned*> pcie, temperature, clock;
  Function<NvmlDevice, unsigned*> power;
  Function<NvmlDevice, unsigned long long*> throttle_reasons;

  // Returns false if the library is missing or lacks required functions.
  bool open() {
    handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) return false;
    init.load(handle, "nvmlInit_v2");
    shutdown.load(handle, "nvmlShutdown");
    device_by_pci.load(handle, "nvmlDeviceGetHandleByPciBusId_v2");
    utilization.load(handle, "nvmlDeviceGetUtilizationRates");
    memory.load(handle, "nvmlDeviceGetMemoryInfo");
    pcie.load(handle, "nvmlDeviceGetPcieThroughput");
    temperature.load(handle, "nvmlDeviceGetTemperature");
    clock.load(handle, "nvmlDeviceGetClockInfo");
    power.load(handle, "nvmlDeviceGetPowerUsage");
    throttle_reasons.load(handle, "nvmlDeviceGetCurrentClocksEventReasons",
                          "nvmlDeviceGetCurrentClocksThrottleReasons");
    return init && shutdown && device_by_pci;
  }
  ~NvmlLibrary() {
    if (handle != nullptr) dlclose(handle);
  }
};

std::string throttle_names(unsigned long long reasons) {
  std::string out;
  const auto add = [&](bool is, const char* name) {
    if (is) out += (out.empty() ? "" : ", ") + std::string(name);
  };
  add((reasons & kPowerCap) != 0, "power cap");
  add((reasons & (kSoftwareHeat | kHardwareHeat)) != 0, "heat");
  add((reasons & kPowerBrake) != 0, "power brake");
  // Thermal slowdown and power brake set this bit too.
  add((reasons & kHardwareSlowdown) != 0 && (reasons & (kHardwareHeat | kPowerBrake)) == 0,
      "hardware slowdown");
  return out;
}

class NvmlSensor final : public DeviceSensor {
 public:
  // `nvml` must be initialised; the destructor shuts it down.
  NvmlSensor(std::unique_ptr<NvmlLibrary> nvml, NvmlDevice device)
      : nvml_(std::move(nvml)), device_(device) {}
  ~NvmlSensor() override { (void)nvml_->shutdown(); }

  DeviceReading read() override {
    DeviceReading out;
    NvmlUtilization utilization{};
    if (nvml_->utilization(device_, &utilization)) out.utilization = 0.01 * utilization.gpu;
    NvmlMemory memory{};
    if (nvml_->memory(device_, &memory)) {
      out.memory_mib = static_cast<double>(memory.used) / (1 << 20);
    }
    unsigned value = 0;
    // KiB/s over the last 20 ms; the call takes as long.
    if (nvml_->pcie(device_, kPcieReceived, &value)) out.pcie_to_device_mib = value / 1024.0;
    if (nvml_->pcie(device_, kPcieTransmitted, &value)) out.pcie_to_host_mib = value / 1024.0;
    if (nvml_->power(device_, &value)) out.power_watts = value / 1000.0;
    if (nvml_->temperature(device_, kTemperatureGpu, &value)) out.temperature_celsius = value;
    if (nvml_->clock(device_, kClockSm, &value)) out.clock_mhz = value;
    unsigned long long reasons = 0;
    if (nvml_->throttle_reasons(device_, &reasons)) out.throttled = throttle_names(reasons);
    return out;
  }

 private:
  std::unique_ptr<NvmlLibrary> nvml_;
  NvmlDevice device_;
};

}  // namespace

std::unique_ptr<DeviceSensor> make_nvml_sensor(const std::string& pci_bus, std::string& why) {
  const auto missing = [&](const std::string& reason) {
    why = "no power, heat and load of the GPU in the metrics: " + reason;
    return nullptr;
  };
  why.clear();
  auto nvml = std::make_unique<NvmlLibrary>();
  if (!nvml->open()) return missing("the driver has no libnvidia-ml.so.1");
  if (!nvml->init()) return missing("NVML does not start");
  NvmlDevice device = nullptr;
  if (!nvml->device_by_pci(pci_bus.c_str(), &device)) {
    (void)nvml->shutdown();
    return missing("NVML does not know " + pci_bus);
  }
  return std::make_unique<NvmlSensor>(std::move(nvml), device);
}

}  // namespace dltrain
