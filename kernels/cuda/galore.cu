// galore_projection and step_view (lib/ops/galore.cpp). A projection is one cooperative launch,
// which ends at once in updates that compute none. It works in f64 and takes the steps of
// kernels/shared/galore.cpp, with others inside:
//   * bases become orthonormal by the Gram-Schmidt process, each vector twice;
//   * eigenvectors are those of the one-sided Jacobi method (Hestenes 1958): rotations of pairs of
//     rows until all rows are orthogonal. Rows of a symmetric matrix become its eigenvectors times
//     their eigenvalues, so it needs no second matrix.
// Vectors are rows in memory. Sums have an order that depends only on shapes and the GPU.
#include <algorithm>

#include "cuda/cooperative_launch.cuh"
#include "cuda/makers.h"
#include "cuda/matmul_tile.cuh"
#include "ops/galore.h"
#include "ops/step_state.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

constexpr int kBlock = kTileSide * kTileSide;
constexpr int kSweeps = 40;            // of the Jacobi method, at most; 6 to 12 are usual
constexpr double kOrthogonal = 1e-14;  // cosine of rows that are not rotated
// A vector that keeps less of its length than this, beside those before it, depends on them.
constexpr double kIndependent = 1e-13;

// A gradient as a matrix A [side, length], whose rows belong to the projected side, and the memory
// of a projection. `width` vectors are computed; 0: all, by the exact method.
struct ProjectionCall {
  int64_t side, length, rank, width, gap;
  int64_t row_stride, column_stride;
  uint64_t stream;  // of the random signs
  // In the workspace:
  double* square;   // A·Aᵀ [side, side], or of a basis [width, width]
  double* basis;    // [width, side]; only with `width`
  double* image;    // [width, length]: basis·A, at last the vectors [rank, side]
  double* lengths;  // of the rows of `square`, or of vectors of the basis before they are changed
  double* dots;
  int64_t* order;       // rows of `square` from the longest to the shortest
  unsigned* rotations;  // [kSweeps]

  DLTRAIN_HD int64_t symmetric() const { return width > 0 ? width : side; }
};

// Sets the addresses to parts of the workspace; returns its bytes.
size_t place(ProjectionCall& c, void* workspace) {
  const auto begin = reinterpret_cast<uintptr_t>(workspace);
  uintptr_t at = begin;
  const auto take = [&]<typename T>(T*& part, int64_t count) {
    part = reinterpret_cast<T*>(at);
    at += sizeof(T) * static_cast<size_t>(count);
  };
  take(c.square, c.symmetric() * c.symmetric());
  take(c.basis, c.width * c.side);
  take(c.image, c.width * c.length);
  take(c.lengths, c.symmetric());
  take(c.dots, c.width);
  take(c.order, c.symmetric());
  take(c.rotations, kSweeps);
  return at - begin;
}

// Warps of the whole launch.
__device__ int64_t launch_warp() {
  return thread_index() / kWarp;
}
__device__ int64_t launch_warps() {
  return thread_count() / kWarp;
}
__device__ int lane() {
  return static_cast<int>(threadIdx.x % kWarp);
}

// Returns the block's shared memory, the same for every product.
__device__ OperandTiles<double>& product_tiles() {
  __shared__ OperandTiles<double> tiles;
  return tiles;
}

// The functions below are called by all threads and end with a barrier of the grid.

// store(i, j, Σ a(i, l)·b(l, j)) for [m, n]; the sum has k terms.
template <typename A, typename B, typename Store>
__device__ void product(int64_t m, int64_t n, int64_t k, const A& a, const B& b,
                        const Store& store) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t across = divide_up(n, kTileExtent), tiles = divide_up(m, kTileExtent) * across;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    product_tile<double>(product_tiles(), thread % kTileSide, thread / kTileSide, m, n, k, a, b,
                         tile / across * kTileExtent, tile % across * kTileExtent, store);
  }
  grid_barrier();
}

// Returns x·y of vectors in memory, in every lane of the warp.
__device__ double dot(const double* x, const double* y, int64_t size) {
  double sum = 0;
  for (int64_t i = lane(); i < size; i += kWarp) sum += x[i] * y[i];
  return warp_sum(sum);
}

// Makes the vectors of the basis orthonormal; those that depend on earlier ones become zero.
__device__ void make_orthonormal(const ProjectionCall& c) {
  const auto vector = [&](int64_t k) { return c.basis + k * c.side; };
  const auto depends = [&](int64_t k, double square) {
    return square <= kIndependent * kIndependent * c.lengths[k];
  };
  for (int64_t k = 0; k < c.width; ++k) {
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = launch_warp(); j <= k; j += launch_warps()) {
        const double square = dot(vector(j), vector(j), c.side);
        if (j == k) {
          if (pass == 0 && lane() == 0) c.lengths[k] = square;
          continue;
        }
        const double product = dot(vector(j), vector(k), c.side);
        if (lane() == 0) c.dots[j] = depends(j, square) ? 0.0 : product / square;
      }
      grid_barrier();
      for (int64_t i = thread_index(); i < c.side; i += thread_count()) {
        double value = vector(k)[i];
        for (int64_t j = 0; j < k; ++j) value -= c.dots[j] * vector(j)[i];
        vector(k)[i] = value;
      }
      grid_barrier();
    }
  }
  for (int64_t k = launch_warp(); k < c.width; k += launch_warps()) {
    const double square = dot(vector(k), vector(k), c.side);
    const double factor = depends(k, square) ? 0.0 : 1 / std::sqrt(square);
    for (int64_t i = lane(); i < c.side; i += kWarp) vector(k)[i] *= factor;
  }
  grid_barrier();
}

// The two rows that pair `index` of a round of a tournament of `players` (even) rows has; every two
// rows meet in one of the players − 1 rounds.
struct Pair {
  int64_t first, second;
};
__device__ Pair pair_of(int64_t players, int64_t round, int64_t index) {
  const int64_t others = players - 1;
  if (index == 0) return {others, round};
  return {(round + index) % others, (round + others - index) % others};
}

// Rotates two rows so that they become orthogonal; returns whether they were not.
__device__ bool rotate(double* x, double* y, int64_t size) {
  double xx = 0, yy = 0, xy = 0;
  for (int64_t i = lane(); i < size; i += kWarp) {
    xx += x[i] * x[i];
    yy += y[i] * y[i];
    xy += x[i] * y[i];
  }
  xx = warp_sum(xx);
  yy = warp_sum(yy);
  xy = warp_sum(xy);
  if (!(std::fabs(xy) > kOrthogonal * (std::sqrt(xx) * std::sqrt(yy)))) return false;
  const double cotangent = (yy - xx) / (2 * xy);
  const double tangent =
      (cotangent < 0 ? -1 : 1) / (std::fabs(cotangent) + std::sqrt(1 + cotangent * cotangent));
  const double cosine = 1 / std::sqrt(1 + tangent * tangent), sine = cosine * tangent;
  for (int64_t i = lane(); i < size; i += kWarp) {
    const double first = x[i], second = y[i];
    x[i] = cosine * first - sine * second;
    y[i] = sine * first + cosine * second;
  }
  return true;
}

// Turns the rows of `square` into its eigenvectors times their eigenvalues, and sorts them.
__device__ void find_eigenvectors(const ProjectionCall& c) {
  const int64_t n = c.symmetric(), players = n + n % 2;
  const auto row = [&](int64_t i) { return c.square + i * n; };
  if (thread_index() < kSweeps) c.rotations[thread_index()] = 0;
  grid_barrier();
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int64_t round = 0; round < players - 1; ++round) {
      for (int64_t i = launch_warp(); i < players / 2; i += launch_warps()) {
        const Pair pair = pair_of(players, round, i);
        if (pair.first >= n || pair.second >= n) continue;
        if (rotate(row(pair.first), row(pair.second), n) && lane() == 0) {
          atomicAdd(c.rotations + sweep, 1u);
        }
      }
      grid_barrier();
    }
    if (c.rotations[sweep] == 0) break;
  }
  for (int64_t i = launch_warp(); i < n; i += launch_warps()) {
    const double square = dot(row(i), row(i), n);
    if (lane() == 0) c.lengths[i] = square;
  }
  grid_barrier();
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    int64_t longer = 0;
    for (int64_t j = 0; j < n; ++j) {
      longer += c.lengths[j] > c.lengths[i] || (c.lengths[j] == c.lengths[i] && j < i) ? 1 : 0;
    }
    c.order[longer] = i;
  }
  grid_barrier();
}

// Writes a vector as a row of the projection: of length 1, with a positive greatest element.
template <typename T>
__device__ void write_vector(const double* vector, int64_t size, T* out) {
  double greatest = 0;  // with its sign
  int64_t at = size;
  for (int64_t i = lane(); i < size; i += kWarp) {
    if (std::fabs(vector[i]) > std::fabs(greatest)) {
      greatest = vector[i];
      at = i;
    }
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, greatest, offset);
    const int64_t other_at = __shfl_xor_sync(0xffffffffu, at, offset);
    const double own = std::fabs(greatest);
    if (std::fabs(other) > own || (std::fabs(other) == own && other_at < at)) {
      greatest = other;
      at = other_at;
    }
  }
  // By the greatest element, so that squares of tiny vectors are not zero.
  double square = 0;
  for (int64_t i = lane(); greatest != 0 && i < size; i += kWarp) {
    square += vector[i] / greatest * (vector[i] / greatest);
  }
  square = warp_sum(square);
  const double root = std::sqrt(square);
  for (int64_t i = lane(); i < size; i += kWarp) {
    out[i] = static_cast<T>(greatest == 0 ? 0.0 : vector[i] / greatest / root);
  }
}

template <typename T>
__global__ void projection_kernel(ProjectionCall c, const StepState* state, const T* gradient,
                                  T* projection) {
  if (state->out.finite == 0 || (state->out.updates - 1) % c.gap != 0) return;
  const auto a = [&](int64_t i, int64_t k) {
    return static_cast<double>(gradient[i * c.row_stride + k * c.column_stride]);
  };
  const auto a_transposed = [&](int64_t k, int64_t i) { return a(i, k); };
  const int64_t n = c.symmetric();
  const auto to_square = [&](int64_t i, int64_t j, double x) { c.square[i * n + j] = x; };
  if (c.width == 0) {
    product(c.side, c.side, c.length, a, a_transposed, to_square);
    find_eigenvectors(c);
    for (int64_t k = launch_warp(); k < c.rank; k += launch_warps()) {
      write_vector(c.square + c.order[k] * n, c.side, projection + k * c.side);
    }
    return;
  }
  const auto basis = [&](int64_t k, int64_t i) { return c.basis[k * c.side + i]; };
  const auto image = [&](int64_t k, int64_t l) { return c.image[k * c.length + l]; };
  const auto image_transposed = [&](int64_t l, int64_t k) { return image(k, l); };
  const auto to_basis = [&](int64_t k, int64_t i, double x) { c.basis[k * c.side + i] = x; };
  const auto to_image = [&](int64_t k, int64_t l, double x) { c.image[k * c.length + l] = x; };
  const auto update = static_cast<uint64_t>(state->out.updates);
  const auto signs = [&](int64_t k, int64_t l) {
    const auto element = static_cast<uint64_t>(l * c.width + k);
    return (random_bits(state->in.seed, c.stream, update, element) & 1) != 0 ? 1.0 : -1.0;
  };
  product(c.width, c.side, c.length, signs, a_transposed, to_basis);
  make_orthonormal(c);
  for (int step = 0; step < kProjectionSteps; ++step) {
    product(c.width, c.length, c.side, basis, a, to_image);
    product(c.width, c.side, c.length, image, a_transposed, to_basis);
    make_orthonormal(c);
  }
  product(c.width, c.length, c.side, basis, a, to_image);
  product(n, n, c.length, image, image_transposed, to_square);
  find_eigenvectors(c);
  const auto vector = [&](int64_t k, int64_t j) { return c.square[c.order[k] * n + j]; };
  product(c.rank, c.side, n, vector, basis,
          [&](int64_t k, int64_t i, double x) { c.image[k * c.side + i] = x; });
  for (int64_t k = launch_warp(); k < c.rank; k += launch_warps()) {
    write_vector(c.image + k * c.side, c.side, projection + k * c.side);
  }
}

__global__ void step_view_kernel(const StepState* state, StepState* view, bool unit_rate,
                                 bool plain_gradient) {
  *view = step_view(*state, unit_rate, plain_gradient);
}

}  // namespace

std::unique_ptr<Kernel> make_cuda_galore_projection(const KernelRequest& request) {
  const TensorSpec &g = request.inputs[1], &p = request.inputs[2];
  if (g.dtype != DType::f32 && g.dtype != DType::f64) return nullptr;
  const bool left = projects_from_left(g.shape),
             randomized = request.attributes.boolean("randomized");
  ProjectionCall call{};
  call.side = p.shape[1];
  call.length = left ? g.shape[1] : g.shape[0];
  call.rank = p.shape[0];
  call.width = randomized ? std::min(call.side, call.rank + kMoreVectors) : 0;
  call.gap = request.attributes.integer("gap");
  call.row_stride = left ? g.shape[1] : 1;
  call.column_stride = left ? 1 : g.shape[1];
  call.stream = random_stream("galore_projection");
  const size_t bytes = place(call, nullptr);
  return make_kernel(
      [call, dtype = g.dtype](const Bindings& b, Stream& stream) {
        ProjectionCall placed = call;
        place(placed, b.workspace);
        with_wide(dtype, [&]<typename T>(T) {
          DLTRAIN_LAUNCH_COOPERATIVE(projection_kernel<T>, kBlock, stream.native(), placed,
                                     b.input<StepState>(0), b.input<T>(1),
                                     static_cast<T*>(b.inputs[2]));
        });
      },
      bytes);
}

std::unique_ptr<Kernel> make_cuda_step_view(const KernelRequest& request) {
  const bool unit_rate = request.attributes.boolean("unit_rate");
  const bool plain = request.attributes.boolean("plain_gradient");
  return make_kernel([=](const Bindings& b, Stream& stream) {
    DLTRAIN_LAUNCH(step_view_kernel, 1, 1, stream.native(), b.input<StepState>(0),
                   b.output<StepState>(0), unit_rate, plain);
  });
}

}  // namespace dltrain
