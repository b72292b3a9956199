#include "data/transforms/transforms.h"

namespace dltrain {

std::vector<KindRow<Transform>> transform_rows();  // of all files of this folder (generated)

const KindTable<Transform>& transform_table() {
  static const KindTable<Transform> table{"transform", transform_rows()};
  return table;
}

void describe_size(Fields& f, std::vector<int64_t>& size, const std::string& doc) {
  f.integers("size", size,
             {.doc = doc,
              .required = true,
              .min = 1,
              .max = 65536,
              .min_size = 1,
              .max_size = 2,
              .scalar_ok = true});
}

void describe_probability(Fields& f, double& probability) {
  f.number("probability", probability,
           {.doc = "Share of the samples that are changed", .min = 0, .max = 1, .known_as = {"p"}});
}

void validate_patch(const ConfigObject& owner, const std::array<double, 2>& scale,
                    const std::array<double, 2>& ratio, Diagnostics& diagnostics) {
  if (scale[0] > scale[1]) diagnostics.add(owner, "scale", "scale must be in ascending order");
  if (ratio[0] > ratio[1]) diagnostics.add(owner, "ratio", "ratio must be in ascending order");
}

void describe_fill(Fields& f, double& fill) {
  f.number(
      "fill", fill,
      {.doc = "Value of pixels outside of the image: 0 (black) to 255 for 8-bit images, in the "
              "units of the data for others",
       .known_as = {"value", "padding_value"}});
}

}  // namespace dltrain
