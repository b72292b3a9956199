// attention without a matrix of tokens by tokens (Dao et al. 2022), by plain CUDA: for f32 and f64,
// and for requests that the vendor's library does not support. There are no atomic additions: the
// gradient has one pass over the keys of each query, and one over the queries of each key.
#include "cuda/attention.cuh"
#include "cuda/attention_inputs.h"
#include "cuda/makers.h"
#include "ops/rules.h"
#include "shared/make_kernel.h"

namespace dltrain {
namespace {

template <typename T>
struct Pointers {
  const T *q, *k, *v;
  __device__ explicit Pointers(const AttentionInputs& in)
      : q(static_cast<const T*>(in.q)),
        k(static_cast<const T*>(in.k)),
        v(static_cast<const T*>(in.v)) {}
};

// The tokens, sample and head of a block.
struct BlockRows {
  int64_t sample, head, first;
  __device__ BlockRows(int64_t tokens, int64_t heads, int rows) {
    const int64_t tiles = divide_up(tokens, rows), block = blockIdx.x;
    first = block % tiles * rows;
    head = block / tiles % heads;
    sample = block / tiles / heads;
  }
};

__device__ int own_warp() {
  return static_cast<int>(threadIdx.x) / kWarp;
}
__device__ int warp_lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionBlock)
    attention_kernel(AttentionCall c, AttentionInputs in, T* y, MathOf<T>* sums) {
  using M = MathOf<T>;
  constexpr int kTile = kAttentionTile<M, kDim, 1>, kRows = kAttentionRows<M, kDim, 1>;
  constexpr int kBlockRows = kAttentionWarps * kRows, kParts = kDim / kWarp;
  __shared__ VectorTile<M, kDim, kTile> keys, values;
  __shared__ VectorTile<M, kDim, kBlockRows> queries;
  __shared__ M weights[kBlockRows][kTile];
  const M kNever = -static_cast<M>(INFINITY);
  const Pointers<T> p(in);
  const BlockRows own(c.queries, c.heads, kBlockRows);
  const int64_t n = own.sample, h = own.head, g = c.kv_head(h);
  const AttentionScores<M> scores(c, in, n, h);
  const int lane = warp_lane();

  queries.load(
      p.q, own.first, c.queries, c.head_dim, [&](int64_t t) { return c.query(n, t, h); }, c.tf32);
  const int64_t end = own.first + kBlockRows < c.queries ? own.first + kBlockRows : c.queries;
  M sum[kRows], most[kRows], out[kRows][kParts];
  for (int r = 0; r < kRows; ++r) {
    sum[r] = 0;
    most[r] = kNever;
    for (int k = 0; k < kParts; ++k) out[r][k] = 0;
  }
  for (int64_t s = scores.first_key(own.first); s < c.pattern.end_key(end - 1, c.keys);
       s += kTile) {
    __syncthreads();
    keys.load(
        p.k, s, c.keys, c.head_dim, [&](int64_t t) { return c.key(n, t, g); }, c.tf32);
    values.load(
        p.v, s, c.keys, c.head_dim, [&](int64_t t) { return c.value(n, t, g); }, c.tf32);
    __syncthreads();
    for (int r = 0; r < kRows; ++r) {
      const int row = own_warp() * kRows + r;
      const int64_t t = own.first + row;
      M score = kNever;
      if (lane < kTile && scores.sees(t, s + lane)) {
        score = scores.score(keys.dot(lane, queries.at[row], c.head_dim), t, s + lane);
      }
      const M top = warp_max(score > most[r] || score != score ? score : most[r]);  // NaN stays
      if (top == kNever) continue;  // uniform over a warp
      const M weight = score == kNever ? M(0) : std::exp(score - top);
      const M shrink = std::exp(most[r] - top);
      most[r] = top;
      sum[r] = sum[r] * shrink + warp_sum(weight);
      if (lane < kTile) {
        weights[row][lane] = rounded_operand(c.tf32, weight * scores.kept(t, s + lane));
      }
      __syncwarp();
      for (int k = 0; k < kParts; ++k) {
        M added = 0;
        for (int j = 0; j < kTile; ++j) added += weights[row][j] * values.at[j][lane + k * kWarp];
        out[r][k] = out[r][k] * shrink + added;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = own.first + own_warp() * kRows + r;
    if (t >= c.queries) continue;
    const bool none = most[r] == kNever;
    for (int k = 0; k < kParts; ++k) {
      const int d = lane + k * kWarp;
      if (d < c.head_dim) {
        y[c.output(n, t, h) + d] = static_cast<T>(none ? M(0) : out[r][k] / sum[r]);
      }
    }
    if (lane == 0) sums[c.row(n, h, t)] = none ? -kNever : most[r] + std::log(sum[r]);
  }
}

// deltas = Σ dy·y of every row: one warp per row.
template <typename T>
__global__ void delta_kernel(AttentionCall c, const T* dy, const T* y, MathOf<T>* deltas) {
  using M = MathOf<T>;
  const int64_t row = thread_index() / kWarp;  // [samples, queries, heads]
  if (row >= c.samples * c.queries * c.heads) return;
  M sum = 0;
  for (int64_t d = warp_lane(); d < c.head_dim; d += kWarp) {
    sum += static_cast<M>(dy[row * c.head_dim + d]) * static_cast<M>(y[row * c.head_dim + d]);
  }
  sum = warp_sum(sum);
  const int64_t h = row % c.heads, t = row / c.heads % c.queries, n = row / c.heads / c.queries;
  if (warp_lane() == 0) deltas[c.row(n, h, t)] = sum;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionBlock)
    query_gradient_kernel(AttentionCall c, AttentionInputs in, const T* dy, const MathOf<T>* sums,
                          const MathOf<T>* deltas, T* dq) {
  using M = MathOf<T>;
  constexpr int kTile = kAttentionTile<M, kDim, 2>, kRows = kAttentionRows<M, kDim, 2>;
  constexpr int kBlockRows = kAttentionWarps * kRows, kParts = kDim / kWarp;
  __shared__ VectorTile<M, kDim, kTile> keys, values;
  __shared__ VectorTile<M, kDim, kBlockRows> queries, gradients;
  __shared__ M slopes[kBlockRows][kTile];  // of the scores
  const Pointers<T> p(in);
  const BlockRows own(c.queries, c.heads, kBlockRows);
  const int64_t n = own.sample, h = own.head, g = c.kv_head(h);
  const AttentionScores<M> scores(c, in, n, h);
  const int lane = warp_lane();

  queries.load(
      p.q, own.first, c.queries, c.head_dim, [&](int64_t t) { return c.query(n, t, h); }, c.tf32);
  gradients.load(
      dy, own.first, c.queries, c.head_dim, [&](int64_t t) { return c.output(n, t, h); }, c.tf32);
  const int64_t end = own.first + kBlockRows < c.queries ? own.first + kBlockRows : c.queries;
  M out[kRows][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kParts; ++k) out[r][k] = 0;
  }
  for (int64_t s = scores.first_key(own.first); s < c.pattern.end_key(end - 1, c.keys);
       s += kTile) {
    __syncthreads();
    keys.load(
        p.k, s, c.keys, c.head_dim, [&](int64_t t) { return c.key(n, t, g); }, c.tf32);
    values.load(
        p.v, s, c.keys, c.head_dim, [&](int64_t t) { return c.value(n, t, g); }, c.tf32);
    __syncthreads();
    for (int r = 0; r < kRows; ++r) {
      const int row = own_warp() * kRows + r;
      const int64_t t = own.first + row;
      if (lane < kTile) {
        M slope = 0;
        if (scores.sees(t, s + lane)) {
          const int64_t at = c.row(n, h, t);
          const M score = scores.score(keys.dot(lane, queries.at[row], c.head_dim), t, s + lane);
          const M weight = std::exp(score - sums[at]);
          const M reached = values.dot(lane, gradients.at[row], c.head_dim);
          slope =
              static_cast<M>(c.scale) * weight * (reached * scores.kept(t, s + lane) - deltas[at]);
        }
        slopes[row][lane] = rounded_operand(c.tf32, slope);
      }
      __syncwarp();
      for (int k = 0; k < kParts; ++k) {
        for (int j = 0; j < kTile; ++j) {
          out[r][k] += slopes[row][j] * keys.at[j][lane + k * kWarp];
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = own.first + own_warp() * kRows + r;
    if (t >= c.queries) continue;
    for (int k = 0; k < kParts; ++k) {
      const int d = lane + k * kWarp;
      if (d < c.head_dim) dq[c.query(n, t, h) + d] = static_cast<T>(out[r][k]);
    }
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionBlock)
    key_gradient_kernel(AttentionCall c, AttentionInputs in, const T* dy, const MathOf<T>* sums,
                        const MathOf<T>* deltas, T* dk, T* dv) {
  using M = MathOf<T>;
  constexpr int kTile = kAttentionTile<M, kDim, 2>, kRows = kAttentionRows<M, kDim, 2>;
  constexpr int kBlockRows = kAttentionWarps * kRows, kParts = kDim / kWarp;
  __shared__ VectorTile<M, kDim, kBlockRows> keys, values;
  __shared__ VectorTile<M, kDim, kTile> queries, gradients;
  __shared__ M slopes[kBlockRows][kTile], weights[kBlockRows][kTile];
  const Pointers<T> p(in);
  const BlockRows own(c.keys, c.kv_heads, kBlockRows);
  const int64_t n = own.sample, g = own.head, shared_by = c.heads / c.kv_heads;
  const int lane = warp_lane();

  keys.load(
      p.k, own.first, c.keys, c.head_dim, [&](int64_t t) { return c.key(n, t, g); }, c.tf32);
  values.load(
      p.v, own.first, c.keys, c.head_dim, [&](int64_t t) { return c.value(n, t, g); }, c.tf32);
  const int64_t end = own.first + kBlockRows < c.keys ? own.first + kBlockRows : c.keys;
  M out_k[kRows][kParts], out_v[kRows][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kParts; ++k) out_k[r][k] = out_v[r][k] = 0;
  }
  for (int64_t h = g * shared_by; h < (g + 1) * shared_by; ++h) {
    const AttentionScores<M> scores(c, in, n, h);
    for (int64_t t = c.first_query_of(own.first); t < c.end_query_of(end - 1); t += kTile) {
      if (scores.first_key(t) >= end) break;  // as all later queries
      __syncthreads();
      queries.load(
          p.q, t, c.queries, c.head_dim, [&](int64_t i) { return c.query(n, i, h); }, c.tf32);
      gradients.load(
          dy, t, c.queries, c.head_dim, [&](int64_t i) { return c.output(n, i, h); }, c.tf32);
      __syncthreads();
      for (int r = 0; r < kRows; ++r) {
        const int row = own_warp() * kRows + r;
        const int64_t s = own.first + row;
        if (lane < kTile) {
          M slope = 0, passed = 0;
          if (scores.sees(t + lane, s)) {
            const int64_t at = c.row(n, h, t + lane);
            const M score = scores.score(queries.dot(lane, keys.at[row], c.head_dim), t + lane, s);
            const M weight = std::exp(score - sums[at]), kept = scores.kept(t + lane, s);
            const M reached = gradients.dot(lane, values.at[row], c.head_dim);
            passed = weight * kept;
            slope = static_cast<M>(c.scale) * weight * (reached * kept - deltas[at]);
          }
          slopes[row][lane] = rounded_operand(c.tf32, slope);
          weights[row][lane] = rounded_operand(c.tf32, passed);
        }
        __syncwarp();
        for (int k = 0; k < kParts; ++k) {
          for (int j = 0; j < kTile; ++j) {
            out_k[r][k] += slopes[row][j] * queries.at[j][lane + k * kWarp];
            out_v[r][k] += weights[row][j] * gradients.at[j][lane + k * kWarp];
          }
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t s = own.first + own_warp() * kRows + r;
    if (s >= c.keys) continue;
    for (int k = 0; k < kParts; ++k) {
      const int d = lane + k * kWarp;
      if (d >= c.head_dim) continue;
      dk[c.key(n, s, g) + d] = static_cast<T>(out_k[r][k]);
      dv[c.value(n, s, g) + d] = static_cast<T>(out_v[r][k]);
    }
  }
}

template <typename M, int kDim, int tensors>
unsigned block_count(int64_t samples, int64_t heads, int64_t tokens) {
  constexpr int rows = kAttentionWarps * kAttentionRows<M, kDim, tensors>;
  return static_cast<unsigned>(samples * heads * divide_up(tokens, rows));
}

template <typename T, int kDim>
void forward(const AttentionCall& c, const AttentionInputs& in, void* y, void* sums,
             CudaStream stream) {
  using M = MathOf<T>;
  DLTRAIN_LAUNCH((attention_kernel<T, kDim>),
                 (block_count<M, kDim, 1>(c.samples, c.heads, c.queries)), kAttentionBlock, stream,
                 c, in, static_cast<T*>(y), static_cast<M*>(sums));
}

template <typename T, int kDim>
void backward(const AttentionCall& c, const AttentionInputs& in, const void* dy, const void* sums,
              const void* deltas, void* dq, void* dk, void* dv, CudaStream stream) {
  using M = MathOf<T>;
  const M *s = static_cast<const M*>(sums), *d = static_cast<const M*>(deltas);
  DLTRAIN_LAUNCH((query_gradient_kernel<T, kDim>),
                 (block_count<M, kDim, 2>(c.samples, c.heads, c.queries)), kAttentionBlock, stream,
                 c, in, static_cast<const T*>(dy), s, d, static_cast<T*>(dq));
  DLTRAIN_LAUNCH((key_gradient_kernel<T, kDim>),
                 (block_count<M, kDim, 2>(c.samples, c.kv_heads, c.keys)), kAttentionBlock, stream,
                 c, in, static_cast<const T*>(dy), s, d, static_cast<T*>(dk), static_cast<T*>(dv));
}

bool attention_supported(const AttentionCall& call) {
  return call.head_dim <= AttentionCall::kMaxHeadDim &&
         call.samples * call.heads * call.queries < (int64_t{1} << 31) &&
         call.samples * call.kv_heads * call.keys < (int64_t{1} << 31);
}

}  // namespace

AttentionCall read_attention_call(const KernelRequest& request, SpecSpan inputs) {
  const Attributes& attributes = request.attributes;
  const AttentionSizes a = attention_sizes(request.op, inputs, attributes);
  AttentionCall call = attention_call(a, inputs[0].dtype, attributes);
  if (call.pattern.masked) {
    call.mask = call.pattern.documents                       ? AttentionCall::Mask::documents
                : inputs[a.packed ? 1 : 3].shape.rank() == 1 ? AttentionCall::Mask::lengths
                                                             : AttentionCall::Mask::tokens;
  }
  return call;
}

AttentionInputs read_attention_inputs(const AttentionCall& call, std::span<void* const> inputs) {
  AttentionInputs in{
      .q = inputs[0], .k = inputs[call.packed ? 0 : 1], .v = inputs[call.packed ? 0 : 2]};
  if (call.mask != AttentionCall::Mask::none) {
    in.mask = static_cast<const int32_t*>(inputs[call.packed ? 1 : 3]);
  }
  if (call.dropout > 0) in.state = static_cast<const StepState*>(inputs.back());
  return in;
}

// → y, sums.
std::unique_ptr<Kernel> make_cuda_attention(const KernelRequest& request) {
  const AttentionCall c = read_attention_call(request, request.inputs);
  if (!attention_supported(c)) return nullptr;
  return make_kernel([c](const Bindings& b, Stream& stream) {
    if (c.samples * c.queries == 0) return;
    const AttentionInputs in = read_attention_inputs(c, b.inputs);
    with_floating(c.dtype, [&]<typename T>(T) {
      (c.head_dim <= 64    ? forward<T, 64>
       : c.head_dim <= 128 ? forward<T, 128>
                           : forward<T, 256>)(c, in, b.outputs[0], b.outputs[1], stream.native());
    });
  });
}

// (dy, y, sums, the forward's inputs) → their gradients. The workspace has one number per row.
std::unique_ptr<Kernel> make_cuda_attention_backward(const KernelRequest& request) {
  const AttentionCall c = read_attention_call(request, request.inputs.subspan(3));
  if (!attention_supported(c)) return nullptr;
  const int64_t rows = c.samples * c.queries * c.heads;
  const auto run = [c, rows](const Bindings& b, Stream& stream) {
    if (c.samples * c.queries == 0) return;
    const AttentionInputs in = read_attention_inputs(c, b.inputs.subspan(3));
    void *dk = b.outputs[c.packed ? 0 : 1], *dv = b.outputs[c.packed ? 0 : 2];
    with_floating(c.dtype, [&]<typename T>(T) {
      DLTRAIN_LAUNCH(delta_kernel<T>, static_cast<unsigned>(divide_up(rows, kAttentionWarps)),
                     kAttentionBlock, stream.native(), c, b.input<T>(0), b.input<T>(1),
                     static_cast<MathOf<T>*>(b.workspace));
      (c.head_dim <= 64    ? backward<T, 64>
       : c.head_dim <= 128 ? backward<T, 128>
                           : backward<T, 256>)(c, in, b.inputs[0], b.inputs[2], b.workspace,
                                               b.outputs[0], dk, dv, stream.native());
    });
  };
  return make_kernel(run, static_cast<size_t>(rows) * dtype_size(accumulation_dtype(c.dtype)));
}

}  // namespace dltrain
