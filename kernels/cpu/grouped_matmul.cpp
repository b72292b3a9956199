// grouped_matmul and the gradient of its matrices (lib/ops/experts.cpp). A thread copies a panel of
// columns of a matrix and multiplies it with all rows of its expert, six at a time. Every element
// is one sum over the inner axis in order, so a row of y depends neither on the other rows nor on
// the number of threads. 16-bit operands are widened when they are copied; sums are f32.
#include <algorithm>
#include <cstring>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "cpu/support.h"
#include "shared/make_kernel.h"
#include "tensor/low_precision.h"

#ifndef DLTRAIN_CPU_GROUPED_MATMUL_ONCE
#define DLTRAIN_CPU_GROUPED_MATMUL_ONCE
namespace dltrain {
namespace {
constexpr int64_t kGroupedColumns = 64;  // most columns of a panel
constexpr int64_t kGroupedRows = 6;      // of a tile
constexpr int64_t kGroupedLines = 16;    // rows of a transposed matrix that are widened together
// c [rows, columns] = a·b, added to c with `add`; a[i, l] is at i·a_row + l·a_inner, and b is a
// part of a matrix [inner, …] of b_stride columns, or of its transpose.
struct GroupedProduct {
  const void *a, *b;
  int64_t a_row, a_inner, b_stride;
  bool transpose_b, add;
  int64_t rows, columns, inner;
  void* c;
  int64_t c_stride;
  float* scratch;  // grouped_scratch(inner) floats
};
constexpr int64_t grouped_scratch(int64_t inner) {
  return inner * (kGroupedColumns + kGroupedRows + kGroupedLines);
}
using GroupedFunction = void (*)(const GroupedProduct& product);
struct GroupedFunctions {
  GroupedFunction run;
  int64_t columns;  // of a panel
};
}  // namespace
}  // namespace dltrain
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/grouped_matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dltrain::HWY_NAMESPACE {
namespace {

// Copies the columns of b to panel[inner][width]; missing columns are zero.
template <typename T>
void copy_panel(const GroupedProduct& p, float* panel, float* lines) {
  const int64_t width = tile_width();
  const auto* b = static_cast<const T*>(p.b);
  if (p.columns < width) std::fill_n(panel, p.inner * width, 0.0f);
  if (!p.transpose_b) {
    for (int64_t l = 0; l < p.inner; ++l) {
      for (int64_t j = 0; j < p.columns; ++j) {
        panel[l * width + j] = to_f32(b[l * p.b_stride + j]);
      }
    }
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    transpose(b, p.columns, p.inner, p.b_stride, panel, width);
    return;
  }
  for (int64_t first = 0; first < p.columns; first += kGroupedLines) {
    const int64_t count = std::min(kGroupedLines, p.columns - first);
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t l = 0; l < p.inner; ++l) {
        lines[j * p.inner + l] = to_f32(b[(first + j) * p.b_stride + l]);
      }
    }
    transpose(lines, count, p.inner, p.inner, panel + first, width);
  }
}

template <typename T, typename Out>
void run_grouped(const GroupedProduct& p) {
  const int64_t width = tile_width();
  float* panel = p.scratch;
  float* left = panel + p.inner * kGroupedColumns;
  float* lines = left + p.inner * kGroupedRows;
  copy_panel<T>(p, panel, lines);
  HWY_ALIGN float tile[kGroupedRows * kGroupedColumns];
  for (int64_t row = 0; row < p.rows; row += kGroupedRows) {
    const int64_t rows = std::min(kGroupedRows, p.rows - row);
    const T* a = static_cast<const T*>(p.a) + row * p.a_row;
    TileSegment segment{left, panel, p.inner};
    int64_t a_row = p.inner, a_inner = 1;
    if constexpr (std::is_same_v<T, float>) {
      segment.a = a;
      a_row = p.a_row;
      a_inner = p.a_inner;
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t l = 0; l < p.inner; ++l) {
          left[i * p.inner + l] = to_f32(a[i * p.a_row + l * p.a_inner]);
        }
      }
    }
    with_constant<kGroupedRows>(rows, [&](auto count) HWY_ATTR {
      run_tile<count>(&segment, 1, a_row, a_inner, width, {nullptr, tile, width, false});
    });
    for (int64_t i = 0; i < rows; ++i) {
      Out* to = static_cast<Out*>(p.c) + (row + i) * p.c_stride;
      for (int64_t j = 0; j < p.columns; ++j) {
        const float sum = tile[i * width + j];
        from_f32(p.add ? sum + to_f32(to[j]) : sum, to[j]);
      }
    }
  }
}

GroupedFunctions grouped_functions(DType in, DType out) {
  const auto run = with_element_type(in, [&]<typename T>(T) -> GroupedFunction {
    return out == DType::f32 ? run_grouped<T, float> : run_grouped<T, T>;
  });
  return {run, tile_width()};
}

}  // namespace
}  // namespace dltrain::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dltrain {
namespace {
HWY_EXPORT(grouped_functions);

constexpr int64_t kGroupedInner = 512;  // rows of an expert that are added up at a time

// Calls product(expert, first row, rows, first column, columns, scratch) for every panel of every
// expert. Neighbouring panels are those of different experts, so that the threads share each.
template <typename F>
void each_panel(const int32_t* offsets, int64_t experts, int64_t columns, int64_t panel,
                int64_t parts, float* scratch, int64_t scratch_floats, const F& product) {
  const UsedThreads used(static_cast<int>(parts));
  const int64_t jobs = experts * ceil_div(columns, panel);
  parallel_parts(jobs, parts, [&](int64_t begin, int64_t end, int64_t part) {
    for (int64_t job = begin; job < end; ++job) {
      const int64_t expert = job % experts, column = job / experts * panel;
      product(expert, offsets[expert], offsets[expert + 1] - offsets[expert], column,
              std::min(panel, columns - column), scratch + part * scratch_floats);
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_grouped_matmul(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (dtype == DType::f64) return nullptr;
  const auto functions = HWY_DYNAMIC_DISPATCH(grouped_functions)(dtype, dtype);
  const int64_t experts = request.inputs[1].shape[0], inner = request.inputs[0].shape[1];
  const int64_t columns = request.outputs[0].shape[1], all = request.inputs[0].shape[0];
  const bool transposed = request.attributes.boolean("transpose_b");
  const int64_t parts = product_threads(request.inputs[0].shape[0], inner, columns);
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  const auto run = [=](const Bindings& b, Stream&) {
    const auto *a = b.input<std::byte>(0), *matrices = b.input<std::byte>(1);
    const auto multiply = [&](int64_t expert, int64_t first, int64_t rows, int64_t column,
                              int64_t count, float* scratch) {
      if (rows == 0) return;
      const int64_t matrix = expert * inner * columns;
      functions.run({.a = a + first * inner * size,
                     .b = matrices + (matrix + column * (transposed ? inner : 1)) * size,
                     .a_row = inner,
                     .a_inner = 1,
                     .b_stride = transposed ? inner : columns,
                     .transpose_b = transposed,
                     .add = false,
                     .rows = rows,
                     .columns = count,
                     .inner = inner,
                     .c = b.output<std::byte>(0) + (first * columns + column) * size,
                     .c_stride = columns,
                     .scratch = scratch});
    };
    const auto* offsets = b.input<int32_t>(2);
    each_panel(offsets, experts, columns, functions.columns, parts,
               static_cast<float*>(b.workspace), grouped_scratch(inner), multiply);
    const int64_t used = offsets[experts] * columns * size;
    std::memset(b.output<std::byte>(0) + used, 0, static_cast<size_t>(all * columns * size - used));
  };
  return make_kernel(run, static_cast<size_t>(parts * grouped_scratch(inner)) * sizeof(float));
}

std::unique_ptr<Kernel> make_grouped_matmul_backward_weight(const KernelRequest& request) {
  const DType dtype = request.inputs[0].dtype;
  if (dtype == DType::f64) return nullptr;
  const auto functions = HWY_DYNAMIC_DISPATCH(grouped_functions)(dtype, DType::f32);
  const Shape& dw = request.outputs[0].shape;
  const int64_t experts = dw[0], m = dw[1], n = dw[2], all = request.inputs[0].shape[0];
  const int64_t parts = product_threads(m, all, n), inner = std::min(kGroupedInner, all);
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  const auto run = [=, accumulate = request.accumulate](const Bindings& b, Stream&) {
    const auto multiply = [&](int64_t expert, int64_t first, int64_t rows, int64_t column,
                              int64_t count, float* scratch) {
      float* to = b.output<float>(0) + expert * m * n + column;
      for (int64_t i = 0; rows == 0 && !accumulate && i < m; ++i) {
        std::fill_n(to + i * n, count, 0.0f);
      }
      for (int64_t row = 0; row < rows; row += inner) {
        functions.run({.a = b.input<std::byte>(0) + (first + row) * m * size,
                       .b = b.input<std::byte>(1) + ((first + row) * n + column) * size,
                       .a_row = 1,
                       .a_inner = m,
                       .b_stride = n,
                       .transpose_b = false,
                       .add = accumulate || row > 0,
                       .rows = m,
                       .columns = count,
                       .inner = std::min(inner, rows - row),
                       .c = to,
                       .c_stride = n,
                       .scratch = scratch});
      }
    };
    each_panel(b.input<int32_t>(2), experts, n, functions.columns, parts,
               static_cast<float*>(b.workspace), grouped_scratch(inner), multiply);
  };
  return make_kernel(run, static_cast<size_t>(parts * grouped_scratch(inner)) * sizeof(float));
}

}  // namespace dltrain
#endif
