// Access to elements of tensors whose dtype is known only at run time.
#include "base/error.h"
#include "reference/call.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

template <typename T>
void put_low(const NaiveCall& c, size_t i, int64_t element, double value) {
  T& y = c.output<T>(i)[element];
  from_f32(static_cast<float>(c.accumulate ? to_f32(y) + value : value), y);
}

}  // namespace

double NaiveCall::element(size_t i, int64_t element) const {
  switch (inputs[i].dtype) {
    case DType::f32:
      return input<float>(i)[element];
    case DType::f64:
      return input<double>(i)[element];
    case DType::bf16:
      return to_f32(input<Bf16>(i)[element]);
    case DType::f16:
      return to_f32(input<F16>(i)[element]);
    case DType::i32:
      return input<int32_t>(i)[element];
    case DType::u8:
      return input<uint8_t>(i)[element];
    default:
      fail(ExitCode::internal, "{}: elements of {}", op, dtype_name(inputs[i].dtype));
  }
}

void NaiveCall::put_element(size_t i, int64_t element, double value) const {
  switch (outputs[i].dtype) {
    case DType::f32:
      return put<float>(i, element, value);
    case DType::f64:
      return put<double>(i, element, value);
    case DType::bf16:
      return put_low<Bf16>(*this, i, element, value);
    case DType::f16:
      return put_low<F16>(*this, i, element, value);
    default:
      fail(ExitCode::internal, "{}: elements of {}", op, dtype_name(outputs[i].dtype));
  }
}

}  // namespace dltrain
