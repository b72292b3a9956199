// The addresses of a frame, and running segments: call by call, observed, or as captured pieces.
#include "graph/frame.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "tensor/float_tensors.h"

namespace dltrain {
namespace {

int64_t count_non_finite(DType dtype, std::span<const std::byte> bytes) {
  if (dtype == DType::f64) {
    const auto* values = reinterpret_cast<const double*>(bytes.data());
    return std::count_if(values, values + bytes.size() / sizeof(double),
                         [](double v) { return !std::isfinite(v); });
  }
  return std::ranges::count_if(floats_of(bytes, dtype), [](float v) { return !std::isfinite(v); });
}

}  // namespace

Frame::Frame(const Program& program, const StateAddress& state, std::byte* work, size_t index)
    : program_(&program),
      tickets_(program.slots(), 0),
      captures_(static_cast<size_t>(program.chunks())),
      sent_(captures_.size()) {
  const Graph& graph = program.graph();
  std::byte* reused = nullptr;  // the memory of low-precision copies
  for (const auto& [copy, offset] : program.reused_copies()) {
    std::byte* address = state(graph.value(copy));
    if (offset == 0) reused = address;
    check_internal(address == reused + offset, "{} is not at its offset in the reused memory",
                   graph.value(copy).name);
  }
  const auto at = [&](const MemoryPlace& place) -> void* {
    if (place.reused) return reused + place.offset;
    return work + (place.shared ? 0 : program.frame_offset(index, place.piece)) + place.offset;
  };
  addresses_.assign(graph.values.size(), nullptr);
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const ValueId root = graph.storage(static_cast<ValueId>(i));
    if (program.is_state(root)) {
      addresses_[i] = state(graph.value(root));
    } else if (const auto place = program.place(root)) {
      addresses_[i] = at(*place);
    }
  }
  calls_.reserve(program.calls().size());
  for (const Call& call : program.calls()) {
    const Node& node = graph.nodes[call.node];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? nullptr : address(id));
    for (ValueId id : node.outputs) outputs.push_back(address(id));
    if (call.temporary && call.adds_temporary) {
      inputs = {at(*call.temporary)};
    } else if (call.temporary) {
      outputs = {at(*call.temporary)};
    }
    const int64_t slot = node.attributes.integer("slot", -1);
    calls_.emplace_back(*call.kernel, inputs, outputs, at(call.workspace),
                        slot < 0 ? nullptr : &tickets_[static_cast<size_t>(slot)]);
  }
}

void Frame::run_call(size_t call, Stream& stream) const {
  try {
    calls_[call].run(stream);
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    throw Error(error.code(), program_->described(call) + ": " + error.what());
  }
}

// Returns no pieces if the backend does not support capture.
std::vector<Frame::Piece> Frame::capture(const std::vector<size_t>& segment, Stream& stream) const {
  std::vector<Piece> pieces;
  const auto captured = [&](size_t i) { return program_->calls()[segment[i]].kernel->captured(); };
  for (size_t i = 0; i < segment.size();) {
    Piece piece{.begin = i};
    for (; i < segment.size() && captured(i) == captured(piece.begin); ++i) piece.end = i + 1;
    if (captured(piece.begin)) {
      piece.graph = program_->options().device->capture(stream, [&] {
        for (size_t k = piece.begin; k < piece.end; ++k) run_call(segment[k], stream);
      });
      if (!piece.graph) return {};
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void Frame::receive(Phase segment, MicroStep variant, Stream& stream, int chunk) {
  for (size_t call : program_->segment(segment, variant, chunk)) {
    if (program_->calls()[call].receives) run_call(call, stream);
  }
  received_ = true;
}

void Frame::end_sends(Stream& stream, int chunk) {
  for (size_t call : program_->segment(Phase::backward, MicroStep::only, chunk)) {
    if (program_->calls()[call].ends_forward) run_call(call, stream);
  }
  sent_[static_cast<size_t>(chunk)] = true;
}

void Frame::run(Phase segment, MicroStep variant, Stream& stream,
                const std::function<void()>& before_sends, int chunk) {
  const std::vector<size_t>& list = program_->segment(segment, variant, chunk);
  const bool received = std::exchange(received_, false);
  const bool forward_sent = sent_[static_cast<size_t>(chunk)];
  if (segment == Phase::backward) sent_[static_cast<size_t>(chunk)] = false;
  bool sent = !before_sends;
  const auto run_calls = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const Call& call = program_->calls()[list[i]];
      if ((call.receives && received) || (call.ends_forward && forward_sent)) continue;
      if (call.sends && !std::exchange(sent, true)) before_sends();
      if (observer_ != nullptr) observer_->begin_call(*program_, list[i], stream);
      run_call(list[i], stream);
      if (observer_ != nullptr) observer_->end_call(*program_, list[i], stream);
    }
  };
  Capture& capture = captures_[static_cast<size_t>(chunk)][static_cast<size_t>(segment)]
                              [static_cast<size_t>(variant)];
  // The first run is never captured: vendor libraries finish their set-up in it.
  if (observer_ == nullptr && program_->options().capture && capture.runs == 1) {
    capture.pieces = this->capture(list, stream);
  }
  if (observer_ == nullptr && capture.runs < 2) ++capture.runs;
  if (observer_ != nullptr || capture.pieces.empty()) {
    run_calls(0, list.size());
  } else {
    for (const Piece& piece : capture.pieces) {
      if (piece.graph) {
        piece.graph->launch(stream);
      } else {
        run_calls(piece.begin, piece.end);
      }
    }
  }
  if (!sent) before_sends();
}

std::string Frame::find_non_finite(Phase segment, MicroStep variant, Stream& stream) {
  for (size_t call : program_->segment(segment, variant)) {
    run_call(call, stream);
    for (ValueId id : program_->graph().nodes[program_->calls()[call].node].outputs) {
      const TensorSpec& spec = program_->graph().value(id).spec;
      if (!is_floating(spec.dtype)) continue;
      std::vector<std::byte> host(spec.bytes());
      program_->options().device->copy(host.data(), address(id), host.size(), stream);
      stream.synchronize();
      const int64_t bad = count_non_finite(spec.dtype, host);
      if (bad == 0) continue;
      return fmt::format("{}: {} of {} values", program_->described(call), bad,
                         spec.shape.elements());
    }
  }
  return {};
}

}  // namespace dltrain
