// Running the segments of a plan: call by call, observed, or as captured pieces.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/plan.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

template <typename T>
int64_t count_non_finite(const std::vector<std::byte>& bytes, int64_t elements) {
  const T* values = reinterpret_cast<const T*>(bytes.data());
  return std::count_if(values, values + elements, [](T v) {
    if constexpr (std::is_floating_point_v<T>) return !std::isfinite(v);
    if constexpr (!std::is_floating_point_v<T>) return !std::isfinite(to_f32(v));
  });
}

int64_t count_non_finite(DType dtype, const std::vector<std::byte>& bytes, int64_t elements) {
  switch (dtype) {
    case DType::f32:
      return count_non_finite<float>(bytes, elements);
    case DType::f64:
      return count_non_finite<double>(bytes, elements);
    case DType::bf16:
      return count_non_finite<Bf16>(bytes, elements);
    case DType::f16:
      return count_non_finite<F16>(bytes, elements);
    default:
      return 0;
  }
}

}  // namespace

// "matmul in layers.2 (forward)"
std::string Plan::described(size_t index) const {
  const Node& node = graph_.nodes[index];
  return fmt::format("{} in {} ({})", node.op->name, node.layer.empty() ? "the model" : node.layer,
                     phase_name(node.phase));
}

void Plan::run_call(size_t call, Stream& stream) const {
  try {
    bound_calls_[call].run(stream);
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    throw Error(error.code(), described(calls_[call].node) + ": " + error.what());
  }
}

void Plan::run_observed(const std::vector<size_t>& list, Stream& stream) {
  for (size_t call : list) {
    observer_->begin_call(*this, call, stream);
    run_call(call, stream);
    observer_->end_call(*this, call, stream);
  }
}

// Returns no pieces if the backend does not support capture.
std::vector<Plan::Piece> Plan::capture(const std::vector<size_t>& segment, Stream& stream) {
  std::vector<Piece> pieces;
  const auto captured = [&](size_t i) { return calls_[segment[i]].kernel->captured(); };
  for (size_t i = 0; i < segment.size();) {
    Piece piece{.begin = i};
    for (; i < segment.size() && captured(i) == captured(piece.begin); ++i) piece.end = i + 1;
    if (captured(piece.begin)) {
      piece.graph = options_.device->capture(stream, [&] {
        for (size_t k = piece.begin; k < piece.end; ++k) run_call(segment[k], stream);
      });
      if (!piece.graph) return {};
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void Plan::run(Phase segment, MicroStep variant, Stream& stream) {
  const auto& list = segments_[static_cast<size_t>(segment)][static_cast<size_t>(variant)];
  if (observer_ != nullptr) return run_observed(list, stream);
  Capture& capture = captures_[static_cast<size_t>(segment)][static_cast<size_t>(variant)];
  const auto run_calls = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) run_call(list[i], stream);
  };
  // The first run is never captured: vendor libraries finish their set-up in it.
  if (options_.capture && capture.runs == 1) capture.pieces = this->capture(list, stream);
  if (capture.runs < 2) ++capture.runs;
  if (capture.pieces.empty()) return run_calls(0, list.size());
  for (const Piece& piece : capture.pieces) {
    if (piece.graph) {
      piece.graph->launch(stream);
    } else {
      run_calls(piece.begin, piece.end);
    }
  }
}

std::string Plan::find_non_finite(Phase segment, MicroStep variant, Stream& stream) {
  for (size_t index : this->segment(segment, variant)) {
    run_call(index, stream);
    const Call& call = calls_[index];
    const Node& node = graph_.nodes[call.node];
    for (ValueId id : node.outputs) {
      const TensorSpec& spec = graph_.value(id).spec;
      if (!is_floating(spec.dtype)) continue;
      std::vector<std::byte> host(spec.bytes());
      options_.device->copy(host.data(), address(id), host.size(), stream);
      stream.synchronize();
      const int64_t n = spec.shape.elements();
      const int64_t bad = count_non_finite(spec.dtype, host, n);
      if (bad != 0) {
        return fmt::format("{}: {} of {} values", described(call.node), bad, n);
      }
    }
  }
  return {};
}

}  // namespace dltrain
