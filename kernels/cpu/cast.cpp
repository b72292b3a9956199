// cast between f32, f64 and bf16 (rounded to nearest, ties to even).
#include <bit>

#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"

namespace dltrain {
namespace {

struct Bf16 {
  uint16_t bits;
};

double widen(float x) {
  return x;
}
double widen(double x) {
  return x;
}
double widen(Bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}

void narrow(double x, float& out) {
  out = static_cast<float>(x);
}
void narrow(double x, double& out) {
  out = x;
}
void narrow(double x, Bf16& out) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1);
  out.bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

template <typename From, typename To>
class Cast final : public Kernel {
 public:
  explicit Cast(int64_t count) : count_(count) {}
  void bind(const Bindings& bindings) override {
    x_ = input<const From>(bindings, 0);
    y_ = output<To>(bindings, 0);
  }
  void run(Stream&) override {
    parallel_for(count_, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) narrow(widen(x_[i]), y_[i]);
    });
  }

 private:
  int64_t count_;
  const From* x_ = nullptr;
  To* y_ = nullptr;
};

template <typename From>
MadeKernel make_from(DType to, int64_t count) {
  switch (to) {
    case DType::f32:
      return std::make_unique<Cast<From, float>>(count);
    case DType::f64:
      return std::make_unique<Cast<From, double>>(count);
    case DType::bf16:
      return std::make_unique<Cast<From, Bf16>>(count);
    default:
      return nullptr;
  }
}

}  // namespace

MadeKernel make_cast(const KernelRequest& request) {
  const int64_t count = request.inputs[0].shape.elements();
  const DType to = request.outputs[0].dtype;
  switch (request.inputs[0].dtype) {
    case DType::f32:
      return make_from<float>(to, count);
    case DType::f64:
      return make_from<double>(to, count);
    case DType::bf16:
      return make_from<Bf16>(to, count);
    default:
      return nullptr;
  }
}

}  // namespace dltrain
