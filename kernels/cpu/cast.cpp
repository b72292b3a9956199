// cast between f32, f64, bf16 and f16 (rounded to nearest, ties to even), and the copies of
// parameters in bf16 or f16.
#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "cpu/tensor_chunks.h"

namespace dltrain {
namespace {

constexpr int64_t kCastGrain = 8192;

template <typename From, typename To>
class Cast final : public Kernel {
 public:
  explicit Cast(int64_t count) : count_(count) {}
  void bind(const Bindings& bindings) override {
    x_ = input<const From>(bindings, 0);
    y_ = output<To>(bindings, 0);
  }
  void run(Stream&) override {
    parallel_for(count_, kCastGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) convert(x_[i], y_[i]);
    });
  }

 private:
  static void convert(From x, To& y) {
    if constexpr (std::is_same_v<From, double>) {
      if constexpr (std::is_same_v<To, double>) {
        y = x;
      } else {
        from_f32(static_cast<float>(x), y);
      }
    } else if constexpr (std::is_same_v<To, double>) {
      y = to_f32(x);
    } else {
      from_f32(to_f32(x), y);
    }
  }

  int64_t count_;
  const From* x_ = nullptr;
  To* y_ = nullptr;
};

// Between f32 and a 16-bit format, in vectors.
class CastRows final : public Kernel {
 public:
  explicit CastRows(const KernelRequest& request) : count_(request.inputs[0].shape.elements()) {
    if (request.outputs[0].dtype == DType::f32) {
      widen_ = widen_function(request.inputs[0].dtype);
    } else {
      narrow_ = narrow_function(request.outputs[0].dtype);
    }
  }
  void bind(const Bindings& bindings) override {
    x_ = bindings.inputs[0];
    y_ = bindings.outputs[0];
  }
  void run(Stream&) override {
    parallel_for(count_, kCastGrain, [&](int64_t begin, int64_t end) {
      if (widen_ != nullptr) {
        widen_(static_cast<const uint16_t*>(x_) + begin, static_cast<float*>(y_) + begin,
               end - begin);
      } else {
        narrow_(static_cast<const float*>(x_) + begin, static_cast<uint16_t*>(y_) + begin,
                end - begin);
      }
    });
  }

 private:
  int64_t count_;
  WidenFunction widen_ = nullptr;
  NarrowFunction narrow_ = nullptr;
  const void* x_ = nullptr;
  void* y_ = nullptr;
};

template <typename From>
MadeKernel make_from(DType to, int64_t count) {
  if (to == DType::f64) return std::make_unique<Cast<From, double>>(count);
  return with_element_type(
      to, [&]<typename To>(To) -> MadeKernel { return std::make_unique<Cast<From, To>>(count); });
}

class LowPrecisionUpdate final : public Kernel {
 public:
  explicit LowPrecisionUpdate(const KernelRequest& request)
      : count_(static_cast<size_t>(request.attributes.integer("count"))),
        chunks_(request.inputs.subspan(1, count_)),
        narrow_(narrow_function(request.outputs[0].dtype)) {}

  void bind(const Bindings& bindings) override {
    tensors_.assign(bindings.inputs.begin() + 1, bindings.inputs.end());
  }

  void run(Stream&) override {
    parallel_for(chunks_.size(), chunks_.grain(32768), [&](int64_t begin, int64_t end) {
      chunks_.for_each(begin, end, [&](int64_t, const TensorChunk& c) {
        const auto* from = static_cast<const float*>(tensors_[c.tensor]) + c.begin;
        narrow_(from, static_cast<uint16_t*>(tensors_[count_ + c.tensor]) + c.begin, c.count);
      });
    });
  }

 private:
  size_t count_;
  TensorChunks chunks_;
  NarrowFunction narrow_;
  std::vector<void*> tensors_;
};

}  // namespace

MadeKernel make_cast(const KernelRequest& request) {
  const int64_t count = request.inputs[0].shape.elements();
  const DType from = request.inputs[0].dtype, to = request.outputs[0].dtype;
  if ((from == DType::f32 && is_low_precision(to)) ||
      (is_low_precision(from) && to == DType::f32)) {
    return std::make_unique<CastRows>(request);
  }
  if (from == DType::f64) return make_from<double>(to, count);
  return with_element_type(from, [&]<typename From>(From) { return make_from<From>(to, count); });
}

MadeKernel make_low_precision_update(const KernelRequest& request) {
  if (request.inputs[1].dtype != DType::f32 || !is_low_precision(request.outputs[0].dtype)) {
    return nullptr;
  }
  return std::make_unique<LowPrecisionUpdate>(request);
}

}  // namespace dltrain
