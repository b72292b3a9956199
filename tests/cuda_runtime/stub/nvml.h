// The answers that tests set for the tests' NVML.
#pragma once

struct FakeNvml {
  int init_code = 0;               // what nvmlInit_v2 returns
  int open = 0;                    // calls of it, less those of nvmlShutdown
  char pci_bus[32]{};              // the GPU that was asked for
  int device_code = 0;             // what asking for it returns
  int sensor_code = 0;             // what reading PCIe traffic and power returns; 3: not supported
  unsigned long long reasons = 0;  // why the clock is low
};

// The library's symbol: extern "C" FakeNvml* fake_nvml().
using FakeNvmlEntry = FakeNvml* (*)();
