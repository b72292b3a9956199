// dequantize, by its formula.
#include "reference/call.h"
#include "reference/makers.h"
#include "tensor/block_codes.h"
#include "tensor/weight_codes.h"

namespace dltrain {

std::unique_ptr<Kernel> reference_dequantize(const KernelRequest& request) {
  return make_naive(request, [table = dynamic_codes(true)]<typename T>(const NaiveCall& c, T) {
    const bool int8 = c.attributes.text("format") == "int8";
    const int64_t columns = c.outputs[0].shape[1];
    const auto* codes = c.input<uint8_t>(0);
    for (int64_t i = 0; i < c.outputs[0].shape.elements(); ++i) {
      if (int8) {
        c.put_element(0, i,
                      T(static_cast<int8_t>(codes[i])) * c.input<T>(1)[i / columns] * T(kInt8Step));
        continue;
      }
      const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
      const T scale = nf4_scale(c.in[1], c.input<T>(2), table.data(), i / kNf4Block);
      c.put_element(0, i, T(kNf4Codes[static_cast<size_t>(code)]) * scale);
    }
  });
}

}  // namespace dltrain
