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

Frame::Frame(const Program& program, const StateAddress& state, std::byte* work, std::byte* shared)
    : program_(&program), tickets_(program.slots(), 0) {
  const Graph& graph = program.graph();
  std::byte* reused = nullptr;  // the memory of low-precision copies
  for (const auto& [copy, offset] : program.reused_copies()) {
    std::byte* address = state(graph.value(copy));
    if (offset == 0) reused = address;
    check_internal(address == reused + offset, "{} is not at its offset in the reused memory",
                   graph.value(copy).name);
  }
  const auto at = [&](const MemoryPlace& place) -> void* {
    return (place.reused ? reused : place.shared ? shared : work) + place.offset;
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

void Frame::run_observed(std::span<const size_t> list, Stream& stream) const {
  for (size_t call : list) {
    observer_->begin_call(*program_, call, stream);
    run_call(call, stream);
    observer_->end_call(*program_, call, stream);
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

size_t Frame::count_messages(std::span<const size_t> list, std::string_view kind,
                             bool at_end) const {
  size_t count = 0;
  for (; count < list.size(); ++count) {
    const size_t call = list[at_end ? list.size() - 1 - count : count];
    const Node& node = program_->graph().nodes[program_->calls()[call].node];
    if (!node.op->name.starts_with(kind)) break;
  }
  return count;
}

void Frame::receive(Phase segment, MicroStep variant, Stream& stream) {
  const std::vector<size_t>& list = program_->segment(segment, variant);
  received_ = count_messages(list, "receive_", false);
  for (size_t i = 0; i < received_; ++i) run_call(list[i], stream);
}

void Frame::run(Phase segment, MicroStep variant, Stream& stream,
                const std::function<void()>& before_sends) {
  const std::span<const size_t> list = program_->segment(segment, variant);
  const size_t first = std::exchange(received_, 0);
  const size_t sends =
      before_sends ? list.size() - count_messages(list, "send_", true) : list.size();
  const auto run_calls = [&](size_t begin, size_t end) {
    begin = std::max(begin, first);
    if (observer_ != nullptr) {
      return run_observed(list.subspan(begin, end - std::min(begin, end)), stream);
    }
    for (size_t i = begin; i < end; ++i) run_call(list[i], stream);
  };
  Capture& capture = captures_[static_cast<size_t>(segment)][static_cast<size_t>(variant)];
  // The first run is never captured: vendor libraries finish their set-up in it.
  if (observer_ == nullptr && program_->options().capture && capture.runs == 1) {
    capture.pieces = this->capture(program_->segment(segment, variant), stream);
  }
  if (observer_ == nullptr && capture.runs < 2) ++capture.runs;
  if (observer_ != nullptr || capture.pieces.empty()) {
    run_calls(0, sends);
  } else {
    for (const Piece& piece : capture.pieces) {
      if (piece.graph) {
        piece.graph->launch(stream);
      } else {
        run_calls(piece.begin, std::min(piece.end, sends));
      }
    }
  }
  if (sends == list.size()) return;
  before_sends();
  run_calls(sends, list.size());
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
