// An engine of another version.
#include "device/engine.h"

extern "C" const dltrain::Engine* dltrain_engine(uint32_t abi) {
  static const dltrain::Engine engine{.abi = abi + 1, .name = "other_abi"};
  return &engine;
}
