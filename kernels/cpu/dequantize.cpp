// dequantize: bound by memory. Pairs of nf4 codes are looked up at once; results of 16 bits are
// rounded in pieces that stay in the cache.
#include <array>
#include <cstring>

#include "cpu/convert.h"
#include "cpu/makers.h"
#include "cpu/parallel.h"
#include "shared/make_kernel.h"
#include "tensor/block_codes.h"
#include "tensor/weight_codes.h"

namespace dltrain {
namespace {

constexpr int64_t kPiece = 2048;  // elements, a multiple of a block

using CodePairs = std::array<std::array<float, 2>, 256>;  // by byte

CodePairs nf4_pairs() {
  CodePairs out{};
  for (size_t byte = 0; byte < out.size(); ++byte) {
    out[byte] = {kNf4Codes[byte >> 4], kNf4Codes[byte & 15]};
  }
  return out;
}

struct Dequantize {
  bool int8;
  int64_t columns;
  CodePairs pairs = nf4_pairs();
  std::array<float, 256> table = dynamic_codes(true);

  // Expands the elements from `begin`, which is a multiple of kPiece.
  void expand(const Bindings& b, int64_t begin, int64_t count, float* to) const {
    if (int8) return expand_int8(b, begin, count, to);
    const uint8_t* codes = b.input<uint8_t>(0) + begin / 2;
    for (int64_t first = 0; first < count; first += kNf4Block, codes += kNf4Block / 2) {
      const float scale =
          nf4_scale(b.inputs[1], b.input<float>(2), table.data(), (begin + first) / kNf4Block);
      const int64_t size = std::min(kNf4Block, count - first), bytes = (size + 1) / 2;
      alignas(64) std::array<float, kNf4Block> values;
      for (int64_t i = 0; i < bytes; ++i) {
        std::memcpy(values.data() + 2 * i, pairs[codes[i]].data(), 2 * sizeof(float));
      }
      float* y = to + first;
      for (int64_t i = 0; i < size; ++i) y[i] = values[static_cast<size_t>(i)] * scale;
    }
  }

 private:
  void expand_int8(const Bindings& b, int64_t begin, int64_t count, float* to) const {
    const int8_t* codes = b.input<int8_t>(0) + begin;
    for (int64_t i = 0; i < count;) {
      const int64_t row = (begin + i) / columns;
      const int64_t end = std::min(count, (row + 1) * columns - begin);
      const float absmax = b.input<float>(1)[row];
      for (; i < end; ++i) to[i] = static_cast<float>(codes[i]) * absmax * kInt8Step;
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> make_dequantize(const KernelRequest& request) {
  const TensorSpec& w = request.outputs[0];
  const DType scales = request.inputs.back().dtype;
  if (scales != DType::f32 || w.dtype == DType::f64) return nullptr;
  const Dequantize call{request.attributes.text("format") == "int8", w.shape[1]};
  const NarrowFunction narrow = w.dtype == DType::f32 ? nullptr : narrow_function(w.dtype);
  return make_kernel([call, narrow, count = w.shape.elements()](const Bindings& b, Stream&) {
    parallel_for(count, kPiece, [&](int64_t first, int64_t last) {
      for (int64_t begin = first; begin < last; begin += kPiece) {
        const int64_t size = std::min(kPiece, last - begin);
        if (narrow == nullptr) {
          call.expand(b, begin, size, b.output<float>(0) + begin);
          continue;
        }
        std::array<float, kPiece> values;
        call.expand(b, begin, size, values.data());
        narrow(values.data(), b.output<uint16_t>(0) + begin, size);
      }
    });
  });
}

}  // namespace dltrain
