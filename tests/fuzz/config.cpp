// libFuzzer entry for the configuration reader: any bytes, as a YAML file and (the first line) as
// an override. Built by `scripts/test.sh --full` with clang: -fsanitize=fuzzer,address,undefined,
// the sources of lib/config, and -Ilib -Itests/config -lyaml-cpp -lfmt.
#include <cstddef>
#include <cstdint>

#include "../config/hostile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An exception that escapes (a dump that does not read back, a bug) is what the fuzzer reports.
  dltrain::example::survives(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
