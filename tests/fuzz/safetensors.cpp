// libFuzzer entry: any bytes as a safetensors file. Allowed: a header whose tensors all lie inside
// the file, or Error(data). Anything else (crash, overrun, another exception) is a finding.
#include "tensor/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  try {
    const SafetensorsHeader header =
        parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz", ExitCode::data);
    for (const SafetensorsEntry& entry : header.entries) {
      if (header.data_offset + entry.begin + entry.spec.bytes() > size) std::abort();
    }
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
