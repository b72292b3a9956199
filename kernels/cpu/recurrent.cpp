// recurrent and its backward: for each token a product by oneDNN on a packed weight, and the units
// (cpu/recurrent_units.cpp); the gradient of the weight is one product over all tokens. The
// operands of the products are dense in the workspace: rows of the op's tensors are entire
// sequences apart, so that all samples of a token would map to the same cache sets.
#include "cpu/recurrent.h"

#include <cstring>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "ops/rules.h"
#include "shared/workspace_parts.h"

namespace dltrain {
namespace {

constexpr int64_t kUnits = 256;  // units of a sample per call

template <typename T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;

// Rows of a dense matrix times a weight that is packed in every run: y (f32) = a·b, or += .
template <typename T>
class PackedProduct {
 public:
  // `strides`: those of b [inner, columns] in memory.
  PackedProduct(int64_t rows, int64_t inner, int64_t columns, const dnnl::memory::dims& strides,
                bool add, WorkspaceParts& workspace) {
    const UsedThreads used(product_threads(rows, inner, columns));
    const auto a = onednn::strided({rows, inner}, {inner, 1}, kDType<T>);
    const auto plain = onednn::strided({inner, columns}, strides, kDType<T>);
    const auto y = onednn::strided({rows, columns}, {columns, 1}, DType::f32);
    dnnl::post_ops post_ops;
    if (add) post_ops.append_sum();
    const auto description = onednn::matmul(a, onednn::any_layout({inner, columns}, kDType<T>),
                                            dnnl::memory::desc(), y, onednn::attributes(post_ops));
    const auto packed = description.weights_desc();
    if (packed != plain) {
      pack_ = onednn::Reorder(plain, packed, false);
      packed_ = workspace.add(packed.get_size());
      pack_scratch_ = workspace.add(pack_.scratch_bytes);
    }
    scratch_ = workspace.add(description.scratchpad_desc().get_size());
    call_ = onednn::Call(dnnl::matmul(description));
    call_.argument(DNNL_ARG_SRC, a);
    call_.argument(DNNL_ARG_WEIGHTS, packed);
    call_.argument(DNNL_ARG_DST, y);
    call_.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  }

  // Returns the packed weight.
  void* pack(std::byte* workspace, void* weight) const {
    if (!pack_.call) return weight;
    pack_.call.run({weight, workspace + packed_, workspace + pack_scratch_});
    return workspace + packed_;
  }
  void run(std::byte* workspace, void* a, void* packed, void* y) const {
    call_.run({a, packed, y, workspace + scratch_});
  }

 private:
  onednn::Reorder pack_;
  onednn::Call call_;
  size_t packed_ = 0, pack_scratch_ = 0, scratch_ = 0;
};

// The operands of TF32 products, rounded into memory of their own in the workspace. Other products
// read their operands where they are.
template <typename T>
class RoundedOperand {
 public:
  RoundedOperand(const KernelRequest& r, size_t count, WorkspaceParts& workspace)
      : rounds_(std::is_same_v<T, float> && rounds_to_tf32(r.attributes)),
        count_(count),
        at_(workspace.add(rounds_ ? count * sizeof(float) : 0)) {}

  void* operator()(std::byte* workspace, void* operand) const {
    if (!rounds_) return operand;
    auto* rounded = reinterpret_cast<float*>(workspace + at_);
    round_to_tf32(static_cast<const float*>(operand), rounded, static_cast<int64_t>(count_));
    return rounded;
  }

 private:
  bool rounds_;
  size_t count_, at_;
};

// Calls f(sample, begin, end) for all units of a step.
template <typename F>
void each_part(const RecurrentSizes& s, const F& f) {
  const int64_t parts = ceil_div(s.hidden, kUnits);
  parallel_each(s.samples * parts, 1, [&](int64_t i) {
    const int64_t begin = i % parts * kUnits;
    f(i / parts, begin, std::min(begin + kUnits, s.hidden));
  });
}

template <typename T>
class Recurrent final : public Kernel {
 public:
  explicit Recurrent(const KernelRequest& r)
      : sizes_(recurrent_sizes(r.outputs[0].shape, r.attributes)),
        function_(std::get<RecurrentFunctions<T>>(all_recurrent_functions(sizes_.kind)).forward),
        states_(static_cast<size_t>(sizes_.samples * sizes_.hidden)),
        products_(static_cast<size_t>(sizes_.samples * sizes_.width())),
        // b is Wᵀ: [hidden, width] with W's rows as columns.
        product_(sizes_.samples, sizes_.hidden, sizes_.width(), {1, sizes_.hidden}, false,
                 workspace_),
        product_at_(workspace_.add(products_ * sizeof(float))),
        cell_at_(workspace_.add(states_ * sizeof(float))),
        state_at_(workspace_.add(states_ * sizeof(T))),
        weight_(r, static_cast<size_t>(r.inputs[1].shape.elements()), workspace_),
        rounded_state_(r, states_, workspace_) {}

  size_t workspace_bytes() const override { return workspace_.total(); }

  void run(const Bindings& b, Stream&) const override {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    auto* products = reinterpret_cast<float*>(workspace + product_at_);
    const RecurrentStep<T> step{.sizes = sizes_,
                                .x = b.input<T>(0),
                                .bias = b.input<T>(2),
                                .product = products,
                                .cell = reinterpret_cast<float*>(workspace + cell_at_),
                                .state = reinterpret_cast<T*>(workspace + state_at_),
                                .y = b.output<T>(0),
                                .gates = b.output<T>(1),
                                .cells = b.output<T>(2)};
    const T* initial_state = b.input<T>(3);
    void* packed = product_.pack(workspace, weight_(workspace, b.inputs[1]));
    start(step, initial_state, b.input<T>(4));
    for (int64_t i = 0; i < sizes_.tokens; ++i) {
      if (i == 0 && initial_state == nullptr) {
        std::fill_n(products, products_, 0.0f);
      } else {
        product_.run(workspace, rounded_state_(workspace, step.state), packed, products);
      }
      const int64_t token = sizes_.token(i);
      each_part(sizes_, [&](int64_t sample, int64_t begin, int64_t end) {
        function_(step, sample, token, begin, end);
      });
    }
  }

 private:
  void start(const RecurrentStep<T>& step, const T* initial_state, const T* initial_cell) const {
    const T* cell = sizes_.kind == RecurrentKind::gru ? initial_state : initial_cell;
    for (size_t i = 0; i < states_; ++i) step.cell[i] = cell == nullptr ? 0 : to_f32(cell[i]);
    if (initial_state != nullptr) {
      std::memcpy(step.state, initial_state, states_ * sizeof(T));
    } else {
      std::memset(static_cast<void*>(step.state), 0, states_ * sizeof(T));
    }
  }

  RecurrentSizes sizes_;
  RecurrentFunction<T> function_;
  WorkspaceParts workspace_;
  size_t states_, products_;  // elements
  PackedProduct<T> product_;
  size_t product_at_, cell_at_, state_at_;
  RoundedOperand<T> weight_, rounded_state_;
};

// dw = dzᵀ·h over all samples and tokens, h the state before each.
template <typename T>
onednn::Call weight_gradient(const RecurrentSizes& s, size_t& scratch_bytes) {
  const int64_t rows = s.samples * s.tokens;
  const auto a = onednn::strided({s.width(), rows}, {1, s.width()}, kDType<T>);
  const auto b = onednn::strided({rows, s.hidden}, {s.hidden, 1}, kDType<T>);
  const auto y = onednn::strided({s.width(), s.hidden}, {s.hidden, 1}, DType::f32);
  const auto description = onednn::matmul(a, b, dnnl::memory::desc(), y, onednn::attributes());
  scratch_bytes = description.scratchpad_desc().get_size();
  onednn::Call call{dnnl::matmul(description)};
  call.argument(DNNL_ARG_SRC, a);
  call.argument(DNNL_ARG_WEIGHTS, b);
  call.argument(DNNL_ARG_DST, y);
  call.argument(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
  return call;
}

template <typename T>
class RecurrentBackward final : public Kernel {
 public:
  explicit RecurrentBackward(const KernelRequest& r)
      : sizes_(recurrent_sizes(r.inputs[1].shape, r.attributes)),
        function_(std::get<RecurrentFunctions<T>>(all_recurrent_functions(sizes_.kind)).backward),
        states_(static_cast<size_t>(sizes_.samples * sizes_.hidden)),
        widths_(static_cast<size_t>(sizes_.samples * sizes_.width())),
        // The result already contains the gradient that bypasses the product.
        product_(sizes_.samples, sizes_.width(), sizes_.hidden, {sizes_.hidden, 1}, true,
                 workspace_),
        dstate_at_(workspace_.add(states_ * sizeof(float))),
        dcell_at_(workspace_.add(states_ * sizeof(float))),
        dz_at_(workspace_.add(widths_ * sizeof(T))),
        before_at_(workspace_.add(states_ * static_cast<size_t>(sizes_.tokens) * sizeof(T))),
        rounded_weight_(r, static_cast<size_t>(r.inputs[4].shape.elements()), workspace_),
        rounded_dz_(r, widths_, workspace_),
        rounded_dz_all_(r, widths_ * static_cast<size_t>(sizes_.tokens), workspace_),
        rounded_before_(r, states_ * static_cast<size_t>(sizes_.tokens), workspace_) {
    size_t scratch = 0;
    weight_ = weight_gradient<T>(sizes_, scratch);
    weight_scratch_ = workspace_.add(scratch);
    if (sizes_.kind == RecurrentKind::gru) {
      dz_all_at_ = workspace_.add(widths_ * static_cast<size_t>(sizes_.tokens) * sizeof(T));
    }
  }

  size_t workspace_bytes() const override { return workspace_.total(); }

  void run(const Bindings& b, Stream&) const override {
    auto* workspace = static_cast<std::byte*>(b.workspace);
    const bool separate = sizes_.kind == RecurrentKind::gru;
    T* dx = b.output<T>(0);
    const RecurrentBackwardStep<T> step{
        .sizes = sizes_,
        .dy = b.input<T>(0),
        .y = b.input<T>(1),
        .gates = b.input<T>(2),
        .cells = b.input<T>(3),
        .initial_state = b.input<T>(6),
        .initial_cell = b.input<T>(7),
        .dstate = reinterpret_cast<float*>(workspace + dstate_at_),
        .dcell = reinterpret_cast<float*>(workspace + dcell_at_),
        .dx = dx,
        .dz = reinterpret_cast<T*>(workspace + dz_at_),
        .dz_all = separate ? reinterpret_cast<T*>(workspace + dz_all_at_) : dx};
    void* packed = product_.pack(workspace, rounded_weight_(workspace, b.inputs[4]));
    std::fill_n(step.dstate, states_, 0.0f);
    std::fill_n(step.dcell, states_, 0.0f);
    for (int64_t i = sizes_.tokens - 1; i >= 0; --i) {
      const int64_t token = sizes_.token(i);
      each_part(sizes_, [&](int64_t sample, int64_t begin, int64_t end) {
        function_(step, sample, token, begin, end);
      });
      if (i > 0) product_.run(workspace, rounded_dz_(workspace, step.dz), packed, step.dstate);
    }
    auto* before = reinterpret_cast<T*>(workspace + before_at_);
    copy_states_before(step, before);
    weight_.run({rounded_dz_all_(workspace, step.dz_all), rounded_before_(workspace, before),
                 b.outputs[1], workspace + weight_scratch_});
    if (b.outputs.size() > 2) add_up_bias(step.dz_all, b.output<float>(2));
  }

 private:
  void copy_states_before(const RecurrentBackwardStep<T>& step, T* states) const {
    const auto row = static_cast<size_t>(sizes_.hidden);
    parallel_each(sizes_.samples, 1, [&](int64_t n) {
      for (int64_t t = 0; t < sizes_.tokens; ++t) {
        T* to = states + (n * sizes_.tokens + t) * sizes_.hidden;
        const int64_t before = sizes_.before(t);
        if (before >= 0) {
          const T* from = step.y + (n * sizes_.tokens + before) * sizes_.hidden;
          std::memcpy(to, from, row * sizeof(T));
        } else if (step.initial_state != nullptr) {
          std::memcpy(to, step.initial_state + n * sizes_.hidden, row * sizeof(T));
        } else {
          std::memset(static_cast<void*>(to), 0, row * sizeof(T));
        }
      }
    });
  }
  // Adds up each column in the order of rows, for any number of threads.
  void add_up_bias(const T* dz, float* db) const {
    const int64_t rows = sizes_.samples * sizes_.tokens, width = sizes_.width();
    parallel_for(width, 64, [&](int64_t begin, int64_t end) {
      std::fill(db + begin, db + end, 0.0f);
      for (int64_t r = 0; r < rows; ++r) {
        const T* row = dz + r * width;
        for (int64_t j = begin; j < end; ++j) db[j] += to_f32(row[j]);
      }
    });
  }

  RecurrentSizes sizes_;
  RecurrentBackwardFunction<T> function_;
  WorkspaceParts workspace_;
  size_t states_, widths_;  // elements
  PackedProduct<T> product_;
  size_t dstate_at_, dcell_at_, dz_at_, before_at_, dz_all_at_ = 0, weight_scratch_ = 0;
  RoundedOperand<T> rounded_weight_, rounded_dz_, rounded_dz_all_, rounded_before_;
  onednn::Call weight_;
};

template <template <typename> class K>
std::unique_ptr<Kernel> make_recurrent_of(const KernelRequest& request) {
  if (onednn::computes_in(request, DType::f32)) return std::make_unique<K<float>>(request);
  if (onednn::computes_in(request, DType::bf16)) return std::make_unique<K<Bf16>>(request);
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_recurrent(const KernelRequest& request) {
  return make_recurrent_of<Recurrent>(request);
}
std::unique_ptr<Kernel> make_recurrent_backward(const KernelRequest& request) {
  return make_recurrent_of<RecurrentBackward>(request);
}

}  // namespace dltrain
