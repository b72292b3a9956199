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

}  // namespace dltrain
