// Interface by which profilers observe the calls of programs.
#pragma once

#include <cstddef>

#include "device/device.h"

namespace dltrain {

class Program;

// Called from the thread that runs the program, around every kernel call. On a GPU, end_call()
// means that the work is queued, not that it is done. Implementations must be quick and allocate
// nothing.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // `call`: index into program.calls().
  virtual void begin_call(const Program& program, size_t call, Stream& stream) = 0;
  virtual void end_call(const Program& program, size_t call, Stream& stream) = 0;
};

}  // namespace dltrain
