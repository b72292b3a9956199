// Reductions along rows (inner extent 1), down columns (the bias gradient), or by strides (reduced
// axes that are not adjacent). Long ones take two passes: partial results of fixed chunks, then the
// same kernel over those.
#include <algorithm>
#include <vector>

#include "cuda/column_sums.cuh"
#include "cuda/makers.h"
#include "cuda/reduce.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int kBlock = kColumnBlock;

// Combines partial results and writes the final one.
template <typename T>
struct Join {
  bool maximum;
  bool accumulate;
  T scale;

  __device__ T start() const { return maximum ? -static_cast<T>(INFINITY) : T(0); }
  __device__ T join(T a, T b) const {
    if (!maximum) return a + b;
    return b > a || b != b ? b : a;  // NaN wins
  }
  __device__ void write(T* y, T value) const {
    const T scaled = maximum ? value : value * scale;
    *y = accumulate ? *y + scaled : scaled;
  }
};

// One warp per row of x [rows, length].
template <typename X, typename T>
__global__ void reduce_short_rows(Join<T> f, const X* x, T* y, int64_t rows, int64_t length) {
  const int64_t row = thread_index() / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= rows) return;
  T value = f.start();
  for (int64_t i = lane; i < length; i += kWarp)
    value = f.join(value, static_cast<T>(x[row * length + i]));
  value = f.maximum ? warp_max(value) : warp_sum(value);
  if (lane == 0) f.write(y + row, value);
}

// One block per chunk of a row; y is [rows, chunks].
template <typename X, typename T>
__global__ void reduce_long_rows(Join<T> f, const X* x, T* y, int64_t length, int64_t chunk) {
  const int64_t row = blockIdx.x, begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < length ? begin + chunk : length;
  T value = f.start();
  for (int64_t i = begin + threadIdx.x; i < end; i += kBlock) {
    value = f.join(value, static_cast<T>(x[row * length + i]));
  }
  value = f.maximum ? block_max(value) : block_sum(value);
  if (threadIdx.x == 0) f.write(y + row * gridDim.y + blockIdx.y, value);
}

// One block per tile of columns of a chunk; x is [outer, length, inner], y [outer, chunks, inner].
template <typename X, typename T, int W>
__global__ void reduce_columns(Join<T> f, const X* x, T* y, int64_t length, int64_t inner,
                               int64_t chunk) {
  __shared__ T partial[kBlock * W];
  const int width = static_cast<int>(blockDim.x) * W, parts = static_cast<int>(blockDim.y);
  const int own = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int64_t tiles = divide_up(inner, width), outer = blockIdx.x / tiles;
  const int64_t first = blockIdx.x % tiles * width, column = first + threadIdx.x * W;
  const int64_t begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < length ? begin + chunk : length;
  constexpr int kLoads = 4;  // rows on their way at once
  T value[W], more[kLoads][W];
  for (int j = 0; j < W; ++j) value[j] = f.start();
  if (column < inner) {
    const X* at = x + outer * length * inner + column;
    int64_t row = begin + threadIdx.y;
    for (; row + (kLoads - 1) * parts < end; row += kLoads * parts) {
      for (int i = 0; i < kLoads; ++i) load_columns<W>(at + (row + i * parts) * inner, more[i]);
      for (int i = 0; i < kLoads; ++i) {
        for (int j = 0; j < W; ++j) value[j] = f.join(value[j], more[i][j]);
      }
    }
    for (; row < end; row += parts) {
      load_columns<W>(at + row * inner, more[0]);
      for (int j = 0; j < W; ++j) value[j] = f.join(value[j], more[0][j]);
    }
  }
  for (int j = 0; j < W; ++j) partial[own * W + j] = value[j];
  __syncthreads();
  for (int c = own; c < width && first + c < inner; c += kBlock) {
    T all = partial[c];
    for (int part = 1; part < parts; ++part) all = f.join(all, partial[part * width + c]);
    f.write(y + (outer * gridDim.y + blockIdx.y) * inner + first + c, all);
  }
}

__device__ int64_t strided_offset(const StridedLayout& layout, int64_t index) {
  int64_t at = 0;
  for (int axis = layout.rank - 1; axis >= 0; --axis) {
    at += index % layout.extent[axis] * layout.stride[0][axis];
    index /= layout.extent[axis];
  }
  return at;
}

// One block per output element.
template <typename X, typename T>
__global__ void reduce_strided(Join<T> f, const X* x, T* y, StridedLayout kept, StridedLayout gone,
                               int64_t length) {
  const X* start = x + strided_offset(kept, blockIdx.x);
  T value = f.start();
  for (int64_t i = threadIdx.x; i < length; i += kBlock) {
    value = f.join(value, static_cast<T>(start[strided_offset(gone, i)]));
  }
  value = f.maximum ? block_max(value) : block_sum(value);
  if (threadIdx.x == 0) f.write(y + blockIdx.x, value);
}

// One pass over [outer, reduced, inner] in `chunks` parts, or over partial results (`joins`).
template <typename X, typename T>
void launch_pass(const Join<T>& f, const X* x, T* y, const ReduceCall& call, int64_t chunks,
                 CudaStream stream, bool joins = false) {
  const int64_t chunk = divide_up(call.reduced, chunks);
  if (call.inner > 1) {
    const bool packs = !joins && rows_in_packs<X>(call.inner, {x});
    with_width<X>(packs, [&]<int W>(std::integral_constant<int, W>) {
      ColumnGrid tiles = joins ? ColumnGrid::join(call.inner) : ColumnGrid(call.inner, W, chunks);
      tiles.grid.x *= static_cast<unsigned>(call.outer);
      DLTRAIN_LAUNCH((reduce_columns<X, T, W>), tiles.grid, tiles.block, stream, f, x, y,
                     call.reduced, call.inner, chunk);
    });
  } else if (call.reduced <= 512) {
    const auto grid = static_cast<unsigned>(divide_up(call.outer * kWarp, kBlock));
    DLTRAIN_LAUNCH((reduce_short_rows<X, T>), grid, kBlock, stream, f, x, y, call.outer,
                   call.reduced);
  } else {
    const dim3 grid(static_cast<unsigned>(call.outer), static_cast<unsigned>(chunks));
    DLTRAIN_LAUNCH((reduce_long_rows<X, T>), grid, kBlock, stream, f, x, y, call.reduced, chunk);
  }
}

template <typename X>
void reduce_typed(const ReduceCall& call, const void* x, void* y, void* workspace,
                  CudaStream stream) {
  using T = MathOf<X>;
  const Join<T> last{call.maximum, call.accumulate, static_cast<T>(call.scale)};
  const X* in = static_cast<const X*>(x);
  T* out = static_cast<T*>(y);
  if (call.strided) {
    DLTRAIN_LAUNCH((reduce_strided<X, T>), static_cast<unsigned>(call.outer), kBlock, stream, last,
                   in, out, call.kept, call.gone, call.reduced);
    return;
  }
  const int64_t chunks = reduce_chunks(call);
  if (chunks == 1) {
    launch_pass(last, in, out, call, 1, stream);
    return;
  }
  T* partial = static_cast<T*>(workspace);
  launch_pass(Join<T>{call.maximum, false, T(1)}, in, partial, call, chunks, stream);
  ReduceCall second = call;
  second.reduced = chunks;
  launch_pass(last, static_cast<const T*>(partial), out, second, 1, stream, /*joins=*/true);
}

// Adjacent axes that are all kept or all reduced, merged; axes of extent 1 are dropped.
struct AxisGroup {
  bool reduced;
  int64_t extent, stride;
};

std::vector<AxisGroup> axis_groups(const Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<AxisGroup> groups;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    const int64_t stride = shape.elements(i + 1, shape.rank());
    if (!groups.empty() && groups.back().reduced == reduced) {
      groups.back().extent *= shape[i];
      groups.back().stride = stride;
    } else {
      groups.push_back({reduced, shape[i], stride});
    }
  }
  return groups;
}

void append(StridedLayout& layout, const AxisGroup& group) {
  layout.extent[layout.rank] = group.extent;
  layout.stride[0][layout.rank] = group.stride;
  ++layout.rank;
}

// Sets [outer, reduced, inner] if the reduced axes are adjacent, else the strided layouts.
void set_extents(ReduceCall& call, const std::vector<AxisGroup>& groups) {
  const auto reduced = std::count_if(groups.begin(), groups.end(),
                                     [](const AxisGroup& group) { return group.reduced; });
  bool after = false;
  for (const AxisGroup& group : groups) {
    int64_t& extent = group.reduced             ? call.reduced
                      : (after && reduced == 1) ? call.inner
                                                : call.outer;
    extent *= group.extent;
    after = after || group.reduced;
    append(group.reduced ? call.gone : call.kept, group);
  }
  call.strided = reduced > 1;
}

}  // namespace

int64_t reduce_chunks(const ReduceCall& call) {
  if (call.strided) return 1;
  // Rows of 16-bit columns are read by blocks of 256 columns; 2048 blocks fill a large GPU.
  const int64_t least = call.inner > 1 ? 64 : 16384;  // least elements per chunk
  const int64_t blocks = std::max<int64_t>(call.outer * divide_up(call.inner, 256), 1);
  const int64_t most = call.inner > 1 ? std::max<int64_t>(2048 / blocks, 1) : 256;
  return std::clamp<int64_t>(divide_up(call.reduced, least), 1, std::min<int64_t>(most, 256));
}

void launch_reduce(const ReduceCall& call, const void* x, void* y, void* workspace,
                   CudaStream stream) {
  if (call.outer * call.inner == 0) return;
  with_floating(call.dtype, [&]<typename X>(X) { reduce_typed<X>(call, x, y, workspace, stream); });
}

std::unique_ptr<Kernel> make_cuda_reduce(const KernelRequest& request) {
  const TensorSpec& x = request.inputs[0];
  if (!is_floating(x.dtype) || request.outputs[0].dtype != accumulation_dtype(x.dtype)) {
    return nullptr;
  }
  const std::string kind = request.attributes.text("kind");
  ReduceCall call{.dtype = x.dtype, .maximum = kind == "max", .accumulate = request.accumulate};
  set_extents(call, axis_groups(x.shape, request.attributes.integers("axes")));
  if (kind == "mean") call.scale = 1.0 / static_cast<double>(call.reduced);
  const auto run = [call](const Bindings& b, Stream& stream) {
    launch_reduce(call, b.inputs[0], b.outputs[0], b.workspace, stream.native());
  };
  return make_kernel(run, static_cast<size_t>(reduce_workspace_elements(call)) *
                              dtype_size(accumulation_dtype(call.dtype)));
}

}  // namespace dltrain
