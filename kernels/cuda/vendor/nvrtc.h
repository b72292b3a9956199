// NVIDIA's run-time compiler, opened when the first program is compiled, so that other functions
// work without libnvrtc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cuda/fused_source.h"

namespace dltrain {

class Nvrtc {
 public:
  // Returns nullptr if the library is missing. Opened once; thread-safe.
  static const Nvrtc* find();
  // Returns why programs cannot be compiled for sm_<architecture> (0: for any): the library is
  // missing, or the GPU is too new or too old for it. Empty if they can.
  static std::string missing(int architecture);

  const std::string& version() const { return version_; }  // "13.0"
  // Returns machine code (a cubin) of `source` for sm_<architecture>. Throws KernelRefused with
  // the compiler's messages.
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
