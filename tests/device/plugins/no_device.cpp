// An engine that finds no device and says why.
#include "device/engine.h"

extern "C" const dltrain::Engine* dltrain_engine(uint32_t) {
  static const dltrain::Engine engine{
      .name = "no_device",
      .device_count = [] { return 0; },
      .problem = []() -> std::string { return "the driver is too old"; }};
  return &engine;
}
