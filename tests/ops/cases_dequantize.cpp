// dequantize: both formats, whole and partial blocks, an odd number of elements, rows that are no
// multiple of a vector, and scales of scales for one and several blocks.
#include <fmt/format.h>

#include "ops/case.h"
#include "tensor/weight_codes.h"

namespace dltrain {

void add_dequantize_cases(std::vector<OpCase>& cases) {
  constexpr WeightCodes kFormats[] = {
      {WeightFormat::int8}, {WeightFormat::nf4}, {WeightFormat::nf4, true}};
  for (const WeightCodes& codes : kFormats) {
    const std::string format = codes.format == WeightFormat::int8 ? "int8" : "nf4";
    for (const auto& [rows, columns] :
         {std::pair(1, 1), {7, 3}, {33, 17}, {64, 64}, {40, 1000}, {3, 4112}}) {
      std::vector<CaseInput> inputs;
      for (const CodedPart& part : coded_parts(codes, rows, columns)) {
        const bool coded = part.spec.dtype == DType::u8;
        inputs.push_back({part.spec, coded ? Fill::ids : Fill::positive, coded ? 256 : 0});
      }
      for (const char* dtype : {"f32", "bf16", "f16"}) {
        cases.push_back(
            {fmt::format("dequantize {}{} {}x{} to {}", format,
                         codes.double_quantization ? " nested" : "", rows, columns, dtype),
             "dequantize",
             inputs,
             {{"format", format},
              {"rows", int64_t{rows}},
              {"columns", int64_t{columns}},
              {"output_dtype", std::string(dtype)}}});
      }
    }
  }
}

}  // namespace dltrain
