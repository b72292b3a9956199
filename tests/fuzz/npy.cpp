// libFuzzer entry: any bytes as a .npy file. Allowed: a header whose elements fill the rest of the
// file exactly, or Error(data).
#include "tensor/npy.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dltrain;
  try {
    const NpyHeader header = parse_npy(std::as_bytes(std::span(data, size)), ExitCode::data);
    if (header.data_offset + header.spec.bytes() != size) std::abort();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) std::abort();
  }
  return 0;
}
