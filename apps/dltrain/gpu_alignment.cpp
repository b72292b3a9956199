// The alignment part of `dltrain plan --gpu`.
#include "compile/alignment.h"
#include "dltrain/gpu_estimate.h"

namespace dltrain {
namespace {

std::string_view product_name(DType dtype) {
  return dtype == DType::u8 ? "fp8" : dtype_name(dtype);
}

}  // namespace

void print_alignment(const Graph& graph, const Gpu& gpu) {
  constexpr size_t kShown = 8;
  const std::vector<MisalignedAxis> axes = misaligned_axes(graph);
  if (!axes.empty()) fmt::print("  misaligned axes of products:\n");
  const auto up = [](int64_t extent, int64_t multiple) {
    return (extent + multiple - 1) / multiple * multiple;
  };
  for (size_t i = 0; i < std::min(axes.size(), kShown); ++i) {
    const MisalignedAxis& a = axes[i];
    std::string layers = a.layer;
    if (a.layers > 1) layers += fmt::format(" and {} more", a.layers - 1);
    const bool short_rows = a.multiple < 64;
    fmt::print("    {}: {} {}, no multiple of {} ({}): {}, or {}{}\n", layers, a.extent, a.axis,
               a.multiple,
               short_rows ? fmt::format("16 bytes of {}", product_name(a.dtype)) : "tiles",
               up(a.extent, a.multiple), up(a.extent, short_rows ? 64 : 128),
               a.vocabulary ? " (model.pad_vocab_to)" : "");
  }
  if (axes.size() > kShown) fmt::print("    and {} more\n", axes.size() - kShown);
  const std::vector<ProductTiles> products = product_tiles(graph, gpu);
  if (products.empty()) return;
  fmt::print("  {:<28}  {:>6}  {:>9}  {:>7}  {:>6}  full %\n", "products m x n x k", "number", "ms",
             "tiles", "waves");
  for (size_t i = 0; i < std::min(products.size(), kShown); ++i) {
    const ProductTiles& p = products[i];
    fmt::print("  {:<28}  {:>6}  {:>9.3f}  {:>7}  {:>6.2f}  {:>6.1f}\n",
               fmt::format("{} x {} x {} {}", p.m, p.n, p.k, product_name(p.dtype)), p.count,
               1e3 * p.seconds, p.tiles, p.waves, 100 * p.full);
  }
  fmt::print(
      "  (a micro-step's; tiles of 128 x 128, waves of {} tiles, one for each multiprocessor; "
      "full: the share of the waves that is result. Libraries cut results of fewer tiles "
      "along k)\n",
      gpu.multiprocessors);
}

}  // namespace dltrain
