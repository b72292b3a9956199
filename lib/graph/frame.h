// A Frame is one micro-batch in flight in a Program: the addresses of its values and of every call,
// the captured graphs, which contain addresses, and the tickets of asynchronous collectives.
//
// Frames of one program share its state and have activations of their own, so as many micro-batches
// can be between forward and backward as there are frames (graph/schedule.h).
//
// Threads: used by one thread, also together with other frames of the program.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/call_observer.h"
#include "graph/program.h"

namespace dltrain {

// Returns the address of a value that lies in the region of state.
using StateAddress = std::function<std::byte*(const GraphValue& value)>;

class Frame {
 public:
  // `work` has program.work_bytes(), and `index` is the number of the frame in it. The program
  // outlives the frame.
  Frame(const Program& program, const StateAddress& state, std::byte* work, size_t index = 0);

  const Program& program() const { return *program_; }
  // The content of state and inputs can be accessed at any time between runs, that of activations
  // only within the run that produced them.
  void* address(ValueId value) const { return addresses_[static_cast<size_t>(value)]; }
  // A call with its addresses; `call`: index into program().calls().
  const BoundCall& call(size_t call) const { return calls_[call]; }

  // Queues a segment; allocates nothing, waits for nothing. The calls between two messages to other
  // ranks are captured as one CUDA graph. The messages are not captured: one begins in the backward
  // and ends in the update, which is another graph, and the host counts them for the watchdog
  // (comm/watch.h). Throws the device's error, with op and layer added (for a captured segment:
  // with the segment).
  // `before_sends` is called before the first message to another stage, or at the end.
  void run(Phase segment, MicroStep variant, Stream& stream,
           const std::function<void()>& before_sends = {}, int chunk = 0);

  // Waits for what the forward of a chunk has sent; its backward does it otherwise.
  void end_sends(Stream& stream, int chunk);
  // Begins to receive the messages from other stages with which the next segment begins.
  void receive(Phase segment, MicroStep variant, Stream& stream, int chunk = 0);

  // Sets the observer that is called around every kernel call, starting with the next run; nullptr
  // removes it. With an observer, captured segments run call by call.
  void observe(CallObserver* observer) { observer_ = observer; }

  // Runs uncaptured and checks every floating output. Returns a description of the first node that
  // produced a non-finite value ("matmul in layers.2: 3 of 1280 values"), or "". Slow.
  std::string find_non_finite(Phase segment, MicroStep variant, Stream& stream);

 private:
  struct Piece {  // calls [begin, end) of a segment
    size_t begin = 0, end = 0;
    std::unique_ptr<CapturedGraph> graph = nullptr;  // nullptr: the calls run one by one
  };
  struct Capture {
    int runs = 0;
    std::vector<Piece> pieces;  // none: nothing is captured
  };

  void run_call(size_t call, Stream& stream) const;
  std::vector<Piece> capture(const std::vector<size_t>& segment, Stream& stream) const;

  const Program* program_;
  std::vector<Collectives::Ticket> tickets_;  // by slot
  std::vector<void*> addresses_;              // by value
  std::vector<BoundCall> calls_;
  // [chunk][phase][variant]
  std::vector<std::array<std::array<Capture, 4>, kPhases>> captures_;
  CallObserver* observer_ = nullptr;
  bool received_ = false;   // receive() has begun the messages of the next segment
  std::vector<bool> sent_;  // by chunk: end_sends() has waited
};

}  // namespace dltrain
