#include "compile/alignment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "compile/cost_model.h"

namespace dltrain {
namespace {

constexpr int64_t kTile = 128, kWide = 128, kWideMultiple = 64, kRowBytes = 16;
// First layers of images have few channels, which cuDNN pads itself.
constexpr int64_t kFewChannels = 4;

struct ProductExtents {
  int64_t rows, inputs, outputs;
};

bool is_matmul(const Node& node) {
  return node.op->name == "matmul" || node.op->name == "fp8_matmul";
}

ProductExtents extents_of(const Graph& graph, const Node& node) {
  const TensorSpec &a = graph.value(node.inputs[0]).spec, &y = graph.value(node.outputs[0]).spec;
  const int64_t outputs = y.shape[-1], rows = y.shape.elements() / outputs;
  const bool transposed = node.attributes.boolean("transpose_a");
  return {rows, transposed ? a.shape.elements() / a.shape[-1] : a.shape[-1], outputs};
}

// Returns the multiple that an extent lacks; 0: none.
int64_t lacking(int64_t extent, DType dtype, bool in_memory) {
  const int64_t row = kRowBytes / static_cast<int64_t>(dtype_size(dtype));
  if (in_memory && extent % row != 0) return row;
  return extent > kWide && extent % kWideMultiple != 0 ? kWideMultiple : 0;
}

}  // namespace

std::vector<MisalignedAxis> misaligned_axes(const Graph& graph) {
  std::set<ValueId> logits;
  for (const Node& node : graph.nodes) {
    if (node.op->name.starts_with("softmax_cross_entropy")) logits.insert(node.inputs[0]);
  }
  std::vector<MisalignedAxis> out;
  std::set<std::tuple<std::string, std::string_view>> seen;
  for (const Node& node : graph.nodes) {
    const bool convolution = node.op->name == "conv2d";
    const bool is_logits = !node.outputs.empty() && logits.contains(node.outputs[0]);
    const bool product = is_matmul(node) && !node.attributes.boolean("transpose_a");
    if (!(product || convolution) || (node.phase != Phase::forward && !is_logits)) continue;
    const ProductExtents extents = extents_of(graph, node);
    const DType dtype = graph.value(node.inputs[0]).spec.dtype;
    const auto add = [&](std::string_view axis, int64_t extent, bool in_memory) {
      const int64_t multiple = lacking(extent, dtype, in_memory);
      if (multiple == 0 || !seen.emplace(node.layer, axis).second) return;
      const auto same = std::ranges::find_if(out, [&](const MisalignedAxis& other) {
        return other.axis == axis && other.extent == extent && other.dtype == dtype;
      });
      if (same != out.end()) {
        ++same->layers;
        return;
      }
      out.push_back({.layer = node.layer,
                     .axis = axis,
                     .extent = extent,
                     .dtype = dtype,
                     .multiple = multiple,
                     .vocabulary = is_logits && axis == "outputs"});
    };
    if (!convolution) add("rows", extents.rows, false);
    if (!convolution || extents.inputs > kFewChannels) add("inputs", extents.inputs, true);
    add("outputs", extents.outputs, true);
  }
  std::ranges::stable_sort(out, {},
                           [](const MisalignedAxis& a) { return a.multiple == kWideMultiple; });
  return out;
}

std::vector<ProductTiles> product_tiles(const Graph& graph, const Gpu& gpu) {
  std::map<std::tuple<int64_t, int64_t, int64_t, DType>, ProductTiles> found;
  for (const Node& node : graph.nodes) {
    if (!is_matmul(node) || node.phase == Phase::update) continue;
    const ProductExtents e = extents_of(graph, node);
    const DType dtype = graph.value(node.inputs[0]).spec.dtype;
    ProductTiles& p = found[{e.rows, e.outputs, e.inputs, dtype}];
    p.m = e.rows, p.n = e.outputs, p.k = e.inputs, p.dtype = dtype;
    ++p.count;
    p.seconds += call_cost(gpu, graph, node, false).seconds;
    p.tiles = ((p.m + kTile - 1) / kTile) * ((p.n + kTile - 1) / kTile);
    p.waves = static_cast<double>(p.tiles) / static_cast<double>(gpu.multiprocessors);
    const double places =
        std::ceil(p.waves) * static_cast<double>(gpu.multiprocessors * kTile * kTile);
    p.full = static_cast<double>(p.m * p.n) / places;
  }
  std::vector<ProductTiles> out;
  for (const auto& [key, p] : found) out.push_back(p);
  std::ranges::stable_sort(out, std::greater(), &ProductTiles::seconds);
  return out;
}

std::string describe_misalignment(const Graph& graph, DType compute) {
  const bool low = compute == DType::bf16 || compute == DType::f16;
  const auto axes = low ? misaligned_axes(graph) : std::vector<MisalignedAxis>();
  if (axes.empty()) return "";
  const MisalignedAxis& first = axes[0];
  return fmt::format(
      "{} has {} {}, which is no multiple of {}{}: a GPU computes such products slower{}",
      first.layer, first.extent, first.axis, first.multiple,
      axes.size() > 1
          ? fmt::format(" ({} more are like it; `dltrain plan --gpu` lists them)", axes.size() - 1)
          : "",
      first.vocabulary ? "; model.pad_vocab_to: 64 pads them" : "");
}

}  // namespace dltrain
