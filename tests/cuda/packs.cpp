// Kernels that process packs of 16 bytes, on data that begins at any element.
#include <cmath>
#include <vector>

#include "catch.h"
#include "cuda/elementwise.h"
#include "cuda_emulation/engine.h"
#include "ops/runner.h"
#include "tensor/low_precision.h"

namespace dltrain {
namespace {

// A tensor in aligned memory, from its element `first` on.
struct Placed {
  std::vector<uint64_t> memory;
  std::byte* data;
  Placed(const HostTensor& tensor, int64_t first) : memory(tensor.data.size() / 8 + 16) {
    auto* begin = reinterpret_cast<std::byte*>(memory.data());
    begin += (16 - reinterpret_cast<uintptr_t>(begin) % 16) % 16;
    data = begin + first * static_cast<int64_t>(dtype_size(tensor.spec.dtype));
    std::copy(tensor.data.begin(), tensor.data.end(), data);
  }
  HostTensor read(const TensorSpec& spec) const {
    HostTensor tensor(spec);
    std::copy(data, data + tensor.data.size(), tensor.data.begin());
    return tensor;
  }
};

HostTensor numbers(DType dtype, int64_t count) {
  HostTensor tensor(TensorSpec{Shape{count}, dtype});
  for (int64_t i = 0; i < count; ++i) tensor.set(i, static_cast<double>(i * 7 % 101));
  return tensor;
}

TEST_CASE("casts of any length and alignment write every element") {
  for (const DType from : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::u8}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
      for (const int64_t count : {1, 7, 16, 333}) {
        for (const int64_t first : {0, 3}) {
          INFO(dtype_name(from) << " to " << dtype_name(to) << ", " << count << " from " << first);
          const HostTensor x = numbers(from, count), zero(TensorSpec{Shape{count}, to});
          Placed in(x, first), out(zero, first);
          launch_cast(from, to, in.data, out.data, count, nullptr);
          launch_cast(from, to, in.data, out.data, count, nullptr, true);
          const HostTensor y = out.read(zero.spec);
          int64_t wrong = 0;  // the sums are exact in every dtype
          for (int64_t i = 0; i < count; ++i) wrong += y.get(i) != 2 * x.get(i) ? 1 : 0;
          CHECK(wrong == 0);
        }
      }
    }
  }
}

TEST_CASE("a bias and an activation reach every element of every row") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t columns : {7, 24, 600}) {
      for (const int64_t first : {0, 1}) {
        for (const bool biased : {true, false}) {
          INFO(dtype_name(dtype) << ", " << columns << " columns from " << first);
          const int64_t rows = 37;
          HostTensor x = numbers(dtype, rows * columns);
          for (int64_t i = 0; i < rows * columns; ++i) x.set(i, x.get(i) - 50);
          const HostTensor b = numbers(dtype, columns);
          Placed y(x, first), bias(b, first);
          launch_bias_activation(ElementwiseOp::relu, dtype, biased ? bias.data : nullptr, y.data,
                                 rows, columns, nullptr);
          const HostTensor found = y.read(x.spec);
          int64_t wrong = 0;
          for (int64_t i = 0; i < rows * columns; ++i) {
            const double sum = x.get(i) + (biased ? b.get(i % columns) : 0);
            wrong += found.get(i) != std::max(sum, 0.0) ? 1 : 0;
          }
          CHECK(wrong == 0);
        }
      }
    }
  }
}

// 1033 classes: rows of 16 bits begin at each of the eight places of a pack.
TEST_CASE("a row of logits has the same bits wherever it begins") {
  const int64_t rows = 9, classes = 1033;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    OpRun run{.op = "softmax_cross_entropy",
              .attributes = {{"ignore_index", int64_t{-100}}, {"label_smoothing", 0.1}},
              .inputs = {HostTensor(TensorSpec{Shape{rows, classes}, dtype}),
                         HostTensor(TensorSpec{Shape{rows}, DType::i32})}};
    for (int64_t i = 0; i < rows * classes; ++i) {
      run.inputs[0].set(i, std::sin(static_cast<double>(i % classes * (i % classes))));
    }
    for (const bool unaligned : {false, true}) {
      INFO(dtype_name(dtype) << (unaligned ? ", not aligned" : ""));
      OpRunner runner(emulated_cuda_engine(), 0, unaligned);
      const HostTensor sums = runner.run(run).outputs[1];
      for (int64_t row = 1; row < rows; ++row) CHECK(sums.get(row) == sums.get(0));
    }
  }
}

}  // namespace
}  // namespace dltrain
