// FP8: whole and partial blocks in every direction, scales that make most elements subnormal,
// saturate them or are not known yet, a tensor that is not finite.
#include <fmt/format.h>

#include "ops/case.h"

namespace dltrain {
namespace {

constexpr int64_t kPlaces = 256;  // kernels/shared/fp8.h

void add_update(std::vector<OpCase>& cases, const char* what, int64_t place, int64_t updates,
                int64_t finite) {
  const CaseInput counts{{Shape{kPlaces}, DType::f32}, Fill::place, place};
  OpCase c{.name = fmt::format("fp8_scale_update {}", what),
           .op = "fp8_scale_update",
           .inputs = {case_state(),
                      counts,
                      {{Shape{3}, DType::f32}, Fill::place, 1},
                      {{Shape{kPlaces}, DType::f32}, Fill::place, 200}}};
  c.state.out.updates = updates;
  c.state.out.finite = finite;
  cases.push_back(std::move(c));
}

// Of numbers that are finite.
CaseInput codes(const Shape& shape, std::string_view format) {
  return {{shape, DType::u8}, Fill::codes, format == "e4m3" ? 0x7F : 0x7C};
}
const CaseInput kScale{{Shape{1}, DType::f32}, Fill::seed, 0, true};

// Blocks of codes with a scale each (lib/ops/fp8.cpp), and the scales of codes [rows, columns].
using Block = std::vector<int64_t>;
const Block kFp8Vector{1, 128}, kFp8Square{128, 128}, kFp8Micro{1, 32};
CaseInput scales(int64_t rows, int64_t columns, const Block& block) {
  const auto parts = [](int64_t size, int64_t part) { return (size + part - 1) / part; };
  const int64_t across = parts(columns, block[1]), padded = 4 * parts(across, 4);
  if (block == kFp8Micro) {
    return {{Shape{128 * parts(rows, 128), padded}, DType::u8}, Fill::scales};
  }
  const Shape shape = block == kFp8Vector ? Shape{across, rows} : Shape{parts(rows, 128), padded};
  return {{shape, DType::f32}, Fill::scales, 0, true};
}

}  // namespace

void add_fp8_cases(std::vector<OpCase>& cases) {
  for (const char* format : {"e4m3", "e5m2"}) {
    for (const Shape& x : {Shape{1}, Shape{7, 3}, Shape{2, 40, 200}, Shape{300, 130}}) {
      const std::string name = fmt::format("{} {}", format, to_string(x));
      for (const Fill fill : {Fill::normal, Fill::not_finite, Fill::seed}) {
        cases.push_back({fmt::format("fp8_counts {} {}", name, static_cast<int>(fill)),
                         "fp8_counts",
                         {case_tensor(x, fill)},
                         {{"format", format}}});
      }
      for (const int64_t place : {0, 110, 121, 134}) {
        const CaseInput counts{{Shape{kPlaces}, DType::f32}, Fill::place, place, true};
        cases.push_back({fmt::format("fp8_round {} with place {}", name, place),
                         "fp8_round",
                         {case_tensor(x), counts},
                         {{"format", format}}});
        for (const bool transpose : {false, true}) {
          cases.push_back({fmt::format("fp8_codes {} with place {}{}", name, place,
                                       transpose ? " transposed" : ""),
                           "fp8_codes",
                           {case_tensor(x), counts},
                           {{"format", format}, {"transpose", transpose}}});
        }
      }
      for (const bool transpose : {false, true}) {
        const CaseInput counts{{Shape{kPlaces}, DType::f32}, Fill::place, 255, true};
        cases.push_back({fmt::format("fp8_codes {} of what is not finite{}", name,
                                     transpose ? " transposed" : ""),
                         "fp8_codes",
                         {case_tensor(x, Fill::not_finite), counts},
                         {{"format", format}, {"transpose", transpose}}});
      }
      for (const Block& block : {kFp8Vector, kFp8Square, kFp8Micro}) {
        const std::string blocks = fmt::format("{} in blocks of {}x{}", name, block[0], block[1]);
        for (const bool transpose : {false, true}) {
          for (const Fill fill : {Fill::normal, Fill::not_finite}) {
            cases.push_back({fmt::format("fp8_codes {}{} {}", blocks,
                                         transpose ? " transposed" : "", static_cast<int>(fill)),
                             "fp8_codes",
                             {case_tensor(x, fill)},
                             {{"format", format}, {"transpose", transpose}, {"block", block}}});
          }
        }
        cases.push_back({"fp8_values " + blocks,
                         "fp8_values",
                         {codes(x, format), scales(x.elements() / x[-1], x[-1], block)},
                         {{"format", format}, {"output_dtype", "bf16"}, {"block", block}}});
      }
      for (const char* dtype : {"f32", "bf16", "f16"}) {
        cases.push_back({fmt::format("fp8_values {} to {}", name, dtype),
                         "fp8_values",
                         {codes(x, format), kScale},
                         {{"format", format}, {"output_dtype", dtype}}});
      }
      for (const auto& [rows, columns] :
           {std::pair(1, 128), {128, 1}, {128, 128}, {1, 32}, {32, 1}}) {
        cases.push_back({fmt::format("fp8_round {} in blocks of {}x{}", name, rows, columns),
                         "fp8_round",
                         {case_tensor(x)},
                         {{"format", format}, {"block", std::vector<int64_t>{rows, columns}}}});
      }
    }
  }
  add_update(cases, "of a new largest element", 130, 7, 1);
  add_update(cases, "whose window is longer than the updates", 3, 1, 1);
  add_update(cases, "of zeros", 0, 4, 1);
  add_update(cases, "of a step that is not finite", 255, 4, 0);
}

void add_fp8_matmul_cases(std::vector<OpCase>& cases) {
  const auto factor = [](const Shape& shape) {
    return CaseInput{{shape, DType::u8}, Fill::codes, 0x40};  // up to 4, or 2
  };
  for (const auto& [a, b] : {std::pair("e4m3", "e4m3"), {"e5m2", "e4m3"}, {"e4m3", "e5m2"}}) {
    for (const auto& [x, n] :
         {std::pair(Shape{1, 16}, 16), {Shape{2, 9, 48}, 32}, {Shape{130, 272}, 80}}) {
      OpCase c{fmt::format("fp8_matmul {} {} times {} {}", a, to_string(x), n, b),
               "fp8_matmul",
               {factor(x), factor({n, x[-1]}), kScale, kScale},
               {{"format_a", a}, {"format_b", b}}};
      cases.push_back(c);
      c.name += " and a bias";
      c.inputs.push_back(case_tensor({n}));
      cases.push_back(std::move(c));
    }
  }
  for (const Block& b : {kFp8Vector, kFp8Square, kFp8Micro}) {
    const Block& a = b == kFp8Micro ? kFp8Micro : kFp8Vector;
    for (const auto& [x, n] : {std::pair(Shape{2, 4, 48}, 32), {Shape{136, 416}, 144}}) {
      OpCase c{fmt::format("fp8_matmul {} times {} with scales of blocks of {}x{}", to_string(x), n,
                           b[0], b[1]),
               "fp8_matmul",
               {factor(x), factor({n, x[-1]}), scales(x.elements() / x[-1], x[-1], a),
                scales(n, x[-1], b)},
               {{"format_a", "e4m3"}, {"format_b", "e4m3"}, {"block_a", a}, {"block_b", b}}};
      cases.push_back(c);
      c.name += " and a bias";
      c.inputs.push_back(case_tensor({n}));
      cases.push_back(std::move(c));
    }
  }
}

}  // namespace dltrain
