// A program with its frames: addresses in memory that the caller owns.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/frame.h"

namespace dltrain {

class LoadedProgram {
 public:
  // Compiles the program; allocates no device memory.
  LoadedProgram(Graph graph, const ProgramOptions& options)
      : program_(std::make_unique<const Program>(std::move(graph), options)) {}

  const Program& program() const { return *program_; }

  // Fixes the addresses of the frames.
  void load(const StateAddress& state, std::byte* work) {
    frames_.clear();
    for (size_t i = 0; i < program_->options().frames; ++i) {
      frames_.emplace_back(*program_, state, work, i);
    }
  }
  Frame& frame(size_t i = 0) { return frames_[i]; }
  const Frame& frame(size_t i = 0) const { return frames_[i]; }
  std::span<Frame> frames() { return frames_; }

  // Queues the copy of an input to the first frame; `from` lives until the stream has copied it.
  template <typename T>
  void write(ValueId input, std::span<const T> from, Stream& stream) const {
    program_->options().device->copy(frame().address(input), from.data(), from.size_bytes(),
                                     stream);
  }
  // Queues the copy of a value of the first frame to the host.
  void read(ValueId value, void* to, Stream& stream) const {
    program_->options().device->copy(to, frame().address(value),
                                     program_->graph().value(value).spec.bytes(), stream);
  }

 private:
  std::unique_ptr<const Program> program_;
  std::vector<Frame> frames_;
};

}  // namespace dltrain
