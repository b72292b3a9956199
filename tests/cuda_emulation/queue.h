// Streams for the emulation (cuda_emulation/emulation.h), for sources that include CUDA's own
// headers.
#pragma once

#include <functional>

namespace dltrain::emulation {

// Receives launches on a stream that is not nullptr and runs `work` (which calls launch) once, now
// or later. Without a queue they run at once.
using Queue = std::function<void(void* stream, const char* kernel, std::function<void()> work)>;
void set_queue(Queue queue);

}  // namespace dltrain::emulation
