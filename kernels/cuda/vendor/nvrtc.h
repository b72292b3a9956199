// NVIDIA's run-time compiler, opened when the first program is compiled: machines without
// libnvrtc run what does not need it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cuda/fused_source.h"

namespace dltrain {

class Nvrtc {
 public:
  // nullptr where the library is missing. Opened once; thread-safe.
  static const Nvrtc* find();

  const std::string& version() const { return version_; }  // "13.0"
  // False for GPUs that are newer or older than the library.
  bool knows(int architecture) const;
  // Machine code (a cubin) of `source` for sm_<architecture>. Throws Error(internal) with the
  // compiler's messages: the source is ours.
  std::string compile(const std::string& source, std::span<const SourceHeader> headers,
                      int architecture) const;

 private:
  struct Functions;
  Nvrtc(const Functions& functions, std::string version)
      : functions_(functions), version_(std::move(version)) {}
  const Functions& functions_;
  std::string version_;
};

}  // namespace dltrain
