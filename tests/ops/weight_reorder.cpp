// Weights of convolutions in oneDNN's layouts (kernels/cpu/weight_reorder.h): the bytes are those
// that oneDNN's own reorder writes.
#include "cpu/weight_reorder.h"

#include <cstring>
#include <random>
#include <vector>

#include "catch.h"
#include "cpu/matmul_tiles.h"
#include "cpu/onednn.h"

using namespace dltrain;
using Tag = dnnl::memory::format_tag;

namespace {

void compare(const Shape& shape, DType dtype, Tag tag) {
  const TensorSpec weight{shape, dtype};
  const auto type =
      dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const dnnl::memory::dims extents{shape[0], shape[3], shape[1], shape[2]};
  const dnnl::memory::desc layout(extents, type, tag);
  const auto order = find_weight_reorder(weight, layout);
  REQUIRE(order != nullptr);

  std::vector<uint16_t> from(weight.bytes() / 2);
  std::mt19937 random(7);
  for (uint16_t& half : from) half = static_cast<uint16_t>(random() & 0x3FFFu);  // finite numbers
  std::vector<std::byte> expected(layout.get_size()), got(layout.get_size(), std::byte{0xFF});
  dnnl::memory source({extents, type, Tag::acdb}, onednn::engine(), from.data());
  dnnl::memory target(layout, onednn::engine(), expected.data());
  dnnl::reorder(source, target).execute(onednn::stream(), source, target);
  order(from.data(), got.data());
  CHECK(got == expected);
}

}  // namespace

TEST_CASE("weights take oneDNN's layouts as its own reorder writes them") {
  if (matmul_functions(DType::f32, true) == nullptr) {
    WARN("Skipped: without AVX-512 oneDNN's reorder is used");
    return;
  }
  struct Row {
    Tag f32, bf16;
    bool any_rows;  // O need be no multiple of 16
  };
  for (const Row& row : {Row{Tag::Acdb16a, Tag::AcdB16a2b, true},
                         {Tag::Acdb32a, Tag::AcdB32a2b, true},
                         {Tag::Acdb48a, Tag::AcdB48a2b, true},
                         {Tag::Acdb64a, Tag::AcdB64a2b, true},
                         {Tag::ABcd16a16b, Tag::ABcd8a16b2a, false},
                         {Tag::BAcd16a16b, Tag::BAcd8a16b2a, false}}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Tag tag = dtype == DType::f32 ? row.f32 : row.bf16;
      CAPTURE(static_cast<int>(tag));
      compare({64, 1, 1, 32}, dtype, tag);
      compare({48, 3, 2, 48}, dtype, tag);
      compare({16, 1, 1, 608}, dtype, tag);  // more than a chunk of words
      if (row.any_rows) compare({70, 2, 3, 10}, dtype, tag);
    }
  }
}

TEST_CASE("other layouts and shapes are left to oneDNN") {
  const auto f32 = dnnl::memory::data_type::f32;
  const dnnl::memory::desc unknown({32, 32, 1, 1}, f32, Tag::Acdb8a);
  CHECK(find_weight_reorder({{32, 1, 1, 32}, DType::f32}, unknown) == nullptr);
  const dnnl::memory::desc padded({24, 32, 1, 1}, f32, Tag::ABcd16a16b);
  CHECK(find_weight_reorder({{24, 1, 1, 32}, DType::f32}, padded) == nullptr);
  const dnnl::memory::desc odd({16, 3, 1, 1}, dnnl::memory::data_type::bf16, Tag::AcdB16a2b);
  CHECK(find_weight_reorder({{16, 1, 1, 3}, DType::bf16}, odd) == nullptr);
}
