// Any bytes as a YAML file, and their first line as an override: they end in a ConfigError, or in a
// configuration that its own dump gives back (an exception that escapes is a finding).
#include <cstddef>
#include <cstdint>

#include "../config/hostile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dltrain::example::survives(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
