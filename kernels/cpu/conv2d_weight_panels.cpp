// conv2d_backward_weight for many channels as products of panels: for each window position,
//
//   dw[o, kh, kw, i] = Σ dy[pixel, o] · x[pixel at that position, i]
//
// over the pixels whose position is inside the image, so padding costs nothing. oneDNN pads, and
// waits for memory where channels are few.
//
// The division into tasks (a position, a block of o, a block of i, a range of rows of y) depends
// only on shapes, and a task adds up its pixels in order: the result does not depend on the
// threads.
#include <algorithm>
#include <array>

#include "cpu/makers.h"
#include "cpu/panel_product.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/conv2d.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

struct Geometry : Conv2dSizes {
  int64_t kernel_size() const { return kernel[0] * kernel[1]; }
  int64_t rows() const { return samples * out[0]; }  // of y
  int64_t weights() const { return out_channels * kernel_size() * in_channels; }
};

constexpr int64_t kConv2dWeightPanelsMaxRows = 2 * kPanelSteps;  // of x and dy in a chunk
using RowList = std::array<const void*, static_cast<size_t>(kConv2dWeightPanelsMaxRows)>;

struct Chunk {
  RowList dy, x;
  int64_t count;
};

// Iterates over the pixels of one window position within a range of rows of y, in chunks.
class Pixels {
 public:
  Pixels(const Geometry& g, int64_t tap, int64_t first_row, int64_t last_row, const std::byte* dy,
         const std::byte* x, int64_t element)
      : g_(g),
        top_(tap / g.kernel[1] * g.dilation[0] - g.padding[0]),
        left_(tap % g.kernel[1] * g.dilation[1] - g.padding[1]),
        row_(first_row),
        last_row_(last_row),
        dy_(dy),
        x_(x),
        dy_pixel_(g.out_channels * element),
        x_pixel_(g.in_channels * element) {
    // Columns with left_ + column·stride in [0, width).
    const int64_t stride = g.stride[1];
    begin_ = left_ < 0 ? ceil_div(-left_, stride) : 0;
    end_ = left_ < g.in[1] ? std::min(g.out[1], ceil_div(g.in[1] - left_, stride)) : 0;
    column_ = begin_;
  }

  // Fills a chunk of at most `most` pixels. Entries after them repeat the last one, for
  // prefetching.
  void next(int64_t most, Chunk& chunk) {
    chunk.count = 0;
    for (; row_ < last_row_ && begin_ < end_; ++row_, column_ = begin_) {
      const int64_t sample = row_ / g_.out[0];
      const int64_t h = row_ % g_.out[0] * g_.stride[0] + top_;
      if (h < 0 || h >= g_.in[0]) continue;
      const std::byte* x = x_ + ((sample * g_.in[0] + h) * g_.in[1] + left_) * x_pixel_;
      const std::byte* dy = dy_ + row_ * g_.out[1] * dy_pixel_;
      for (; column_ < end_; ++column_) {
        if (chunk.count == most) return;
        chunk.dy[static_cast<size_t>(chunk.count)] = dy + column_ * dy_pixel_;
        chunk.x[static_cast<size_t>(chunk.count)] = x + column_ * g_.stride[1] * x_pixel_;
        ++chunk.count;
      }
    }
    if (chunk.count == 0) return;
    const auto last = static_cast<size_t>(chunk.count - 1);
    std::fill(chunk.dy.begin() + chunk.count, chunk.dy.begin() + most, chunk.dy[last]);
    std::fill(chunk.x.begin() + chunk.count, chunk.x.begin() + most, chunk.x[last]);
  }

 private:
  const Geometry& g_;
  int64_t top_, left_, row_, last_row_;
  const std::byte *dy_, *x_;
  int64_t dy_pixel_, x_pixel_;  // bytes
  int64_t begin_, end_, column_;
};

// The division of the work: at least kTasks tasks, if blocks stay large enough to be worth copying.
struct WorkSplit {
  static constexpr int64_t kTasks = 32;
  static constexpr int64_t kMinOut = 120, kMaxOut = 264, kMinIn = 128;
  static constexpr int64_t kMinPixels = 1024;  // of a range, approximately, if there are several

  int64_t out_blocks, in_blocks = 1, ranges = 1;

  explicit WorkSplit(const Geometry& g) : out_blocks(ceil_div(g.out_channels, kMaxOut)) {
    const auto tasks = [&] { return g.kernel_size() * out_blocks * in_blocks; };
    while (tasks() < kTasks) {
      const int64_t out = g.out_channels / out_blocks, in = g.in_channels / in_blocks;
      if (out >= in && out >= 2 * kMinOut) {
        out_blocks *= 2;
      } else if (in >= 2 * kMinIn) {
        in_blocks *= 2;
      } else if (out >= 2 * kMinOut) {
        out_blocks *= 2;
      } else {
        break;
      }
    }
    const int64_t pixels = g.rows() * g.out[1];
    ranges = std::clamp<int64_t>(std::min(ceil_div(kTasks, tasks()), ceil_div(pixels, kMinPixels)),
                                 1, g.rows());
  }
};

class Conv2dBackwardWeightPanels {
 public:
  Conv2dBackwardWeightPanels(const Geometry& g, DType dtype, const PanelFunctions& functions,
                             bool accumulate)
      : g_(g),
        cut_(g),
        functions_(functions),
        element_(static_cast<int64_t>(dtype_size(dtype))),
        accumulate_(accumulate),
        parts_(std::min<int64_t>(thread_count(), tasks())) {}

  size_t workspace_bytes() const {
    const int64_t partial = cut_.ranges > 1 ? cut_.ranges * g_.weights() : 0;
    return static_cast<size_t>(parts_) * part_bytes() +
           static_cast<size_t>(partial) * sizeof(float);
  }

  void run(const Bindings& b) {
    dy_ = b.input<std::byte>(0);
    x_ = b.input<std::byte>(1);
    dw_ = b.output<float>(0);
    workspace_ = static_cast<std::byte*>(b.workspace);
    partial_ = reinterpret_cast<float*>(workspace_ + static_cast<size_t>(parts_) * part_bytes());
    parallel_parts(tasks(), parts_, [&](int64_t begin, int64_t end, int64_t part) {
      for (int64_t task = begin; task < end; ++task) run_task(task, part);
    });
    if (cut_.ranges > 1) add_ranges();
  }

 private:
  int64_t tasks() const {
    return cut_.ranges * cut_.out_blocks * cut_.in_blocks * g_.kernel_size();
  }

  // Memory of a thread: two chunks of rows, the left panel of a block and one right panel.
  int64_t left_stride() const {
    return left_panel_stride(ceil_div(g_.out_channels, cut_.out_blocks));
  }
  size_t part_bytes() const {
    return 2 * sizeof(Chunk) +
           static_cast<size_t>(kPanelSteps * (left_stride() + kPanelColumns)) * sizeof(float);
  }

  void run_task(int64_t task, int64_t part) const {
    const int64_t tap = task % g_.kernel_size();
    const int64_t in = task / g_.kernel_size() % cut_.in_blocks;
    const int64_t out = task / g_.kernel_size() / cut_.in_blocks % cut_.out_blocks;
    const int64_t range = task / g_.kernel_size() / cut_.in_blocks / cut_.out_blocks;
    // Blocks of i begin at multiples of 16.
    const int64_t vectors = g_.in_channels / 16;
    const int64_t i0 = vectors * in / cut_.in_blocks * 16;
    const int64_t i1 = vectors * (in + 1) / cut_.in_blocks * 16;
    const int64_t o0 = g_.out_channels * out / cut_.out_blocks;
    const int64_t o1 = g_.out_channels * (out + 1) / cut_.out_blocks;
    float* to = (cut_.ranges > 1 ? partial_ + range * g_.weights() : dw_) +
                (o0 * g_.kernel_size() + tap) * g_.in_channels;
    bool add = accumulate_ && cut_.ranges == 1;

    auto* chunks = reinterpret_cast<Chunk*>(workspace_ + static_cast<size_t>(part) * part_bytes());
    auto* left = reinterpret_cast<float*>(chunks + 2);
    float* right = left + kPanelSteps * left_stride();
    const int64_t first_row = g_.rows() * range / cut_.ranges;
    const int64_t last_row = g_.rows() * (range + 1) / cut_.ranges;
    // Chunks of similar size: a short one at the end would be mostly overhead.
    const int64_t step = functions_.rows_a_step, count = (last_row - first_row) * g_.out[1];
    const int64_t chunk = ceil_div(count, ceil_div(count, kPanelSteps * step));
    const int64_t most = ceil_div(chunk, step) * step;
    Pixels pixels(g_, tap, first_row, last_row, dy_, x_, element_);
    Chunk *now = chunks, *next = chunks + 1;
    pixels.next(most, *now);
    do {
      pixels.next(most, *next);
      multiply(*now, *next, o0, o1, i0, i1, left, right, to, add);
      std::swap(now, next);
      add = true;
    } while (now->count > 0);
  }

  void multiply(const Chunk& now, const Chunk& next, int64_t o0, int64_t o1, int64_t i0, int64_t i1,
                float* left, float* right, float* to, bool add) const {
    functions_.pack(now.dy.data(), now.count, o0, o1 - o0, left, left_stride());
    const int64_t panels = ceil_div(i1 - i0, kPanelColumns);
    const int64_t dy_lines = next.count == 0 ? 0 : ceil_div((o1 - o0) * element_, 64);
    for (int64_t i = i0, panel = 0; i < i1; i += kPanelColumns, ++panel) {
      const int64_t columns = std::min(kPanelColumns, i1 - i);
      functions_.pack(now.x.data(), now.count, i, columns, right, kPanelColumns);
      const int64_t first = dy_lines * panel / panels, last = dy_lines * (panel + 1) / panels;
      functions_.multiply({.left = left,
                           .right = right,
                           .left_stride = left_stride(),
                           .right_stride = kPanelColumns,
                           .steps = ceil_div(now.count, functions_.rows_a_step),
                           .rows = o1 - o0,
                           .columns = columns,
                           .c = to + i,
                           .ldc = g_.kernel_size() * g_.in_channels,
                           .add = add,
                           .prefetch = {{next.dy.data(), o0 * element_ + 64 * first, last - first},
                                        {next.x.data(), i * element_,
                                         next.count == 0 ? 0 : ceil_div(columns * element_, 64)}}});
    }
  }

  void add_ranges() const {
    const int64_t n = g_.weights();
    parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < cut_.ranges; ++r) {
        const float* from = partial_ + r * n;
        const bool add = r > 0 || accumulate_;
        for (int64_t i = begin; i < end; ++i) dw_[i] = add ? dw_[i] + from[i] : from[i];
      }
    });
  }

  Geometry g_;
  WorkSplit cut_;
  const PanelFunctions& functions_;
  int64_t element_;  // bytes of an element of x and dy
  bool accumulate_;
  int64_t parts_;
  const std::byte *dy_ = nullptr, *x_ = nullptr;
  float *dw_ = nullptr, *partial_ = nullptr;
  std::byte* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernel> make_conv2d_backward_weight_panels(const KernelRequest& request) {
  const TensorSpec &dy = request.inputs[0], &x = request.inputs[1], &w = request.outputs[0];
  if (x.dtype != dy.dtype || w.dtype != DType::f32) return nullptr;
  const PanelFunctions* functions = panel_functions(x.dtype);
  if (functions == nullptr) return nullptr;
  const Geometry g{Conv2dSizes(x.shape, w.shape, dy.shape, Conv2dAttributes(request.attributes))};
  if (g.groups != 1 || g.in_channels % 16 != 0 || x.shape.elements() == 0 ||
      dy.shape.elements() == 0) {
    return nullptr;
  }
  // oneDNN was measured to be faster with fewer channels, and with 64 in f32 if it need not copy.
  const bool dense = g.kernel_size() > 1 && g.stride[0] == 1 && g.stride[1] == 1;
  const int64_t least = dense && x.dtype == DType::f32 ? 65 : 64;
  if (g.out_channels < 64 || g.in_channels < 64 ||
      std::max(g.in_channels, g.out_channels) < least) {
    return nullptr;
  }
  return make_call_kernel<Conv2dBackwardWeightPanels>(g, x.dtype, *functions, request.accumulate);
}

}  // namespace dltrain
