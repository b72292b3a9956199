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

// Rows of the sizes that stay in shared memory, and of one that does not.
TEST_CASE("loss and gradient at once are those of the two ops") {
  const auto [dtype, columns, classes] =
      GENERATE(std::tuple{DType::bf16, 50304, 50257}, std::tuple{DType::f32, 1536, 1536},
               std::tuple{DType::f16, 1536, 1535}, std::tuple{DType::bf16, 120000, 120000});
  const int64_t rows = 9;
  OpRun run{.op = "softmax_cross_entropy",
            .attributes = {{"ignore_index", int64_t{-100}}, {"classes", int64_t{classes}}},
            .inputs = {HostTensor(TensorSpec{Shape{rows, columns}, dtype}),
                       HostTensor(TensorSpec{Shape{rows}, DType::i32})}};
  HostTensor &x = run.inputs[0], &targets = run.inputs[1];
  for (int64_t i = 0; i < rows * columns; ++i) x.set(i, std::sin(static_cast<double>(i * i)));
  const auto put = [&](int64_t row, int64_t column, double value) {
    x.set(row * columns + column, value);
  };
  for (int64_t row = 0; row < rows; ++row) targets.set(row, static_cast<double>(row * 170));
  put(1, 170, 5), put(1, 171, 5);    // right: the first of the greatest
  put(2, 339, 5), put(2, 340, 5);    // wrong: the second
  put(3, 700, NAN), put(3, 510, 9);  // no number
  put(4, 800, NAN), targets.set(4, -100);
  put(5, 3, -INFINITY), put(5, 850, 8);
  for (int64_t k = 0; k < columns; ++k) put(6, k, -INFINITY);
  put(7, 1190, -INFINITY);  // an infinite loss
  put(8, columns - 1, classes < columns ? 100 : 0);
  OpRunner runner(emulated_cuda_engine());
  const std::vector<HostTensor> loss = runner.run(run).outputs;
  HostTensor seed(TensorSpec{Shape{1}, DType::f64});
  seed.set(0, 0.25);
  run.op = "softmax_cross_entropy_gradient";
  run.inputs.push_back(seed);
  const std::vector<HostTensor> both = runner.run(run).outputs;
  run.op = "softmax_cross_entropy_backward";
  run.inputs.insert(run.inputs.begin() + 2, loss[1]);
  const std::vector<HostTensor> gradient = runner.run(run).outputs;
  INFO(dtype_name(dtype) << " " << columns);
  CHECK(std::isnan(both[1].get(0)));
  CHECK(std::isnan(loss[0].get(0)));
  CHECK(both[2].get(0) == 2);  // rows 1 and 5
  CHECK(both[2].get(0) == loss[2].get(0));
  int64_t wrong = 0;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double found = both[0].get(i), expected = gradient[0].get(i);
    const bool same = std::isnan(expected) ? std::isnan(found)
                                           : std::abs(found - expected) <= std::abs(expected) / 64;
    wrong += same ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace dltrain
