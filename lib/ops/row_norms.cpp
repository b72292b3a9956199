// row_norms(w, p): norm = ‖w + scale·p‖ of each row.
//   w, p [N, K], norm [N]. Attribute: scale. Sums are in double, so that the same norms result on
//   every engine but for the last rounding. Without a gradient: DoRA (nn/lora.h) takes the norms of
//   its weights as constants.
#include "ops/definitions.h"
#include "ops/rules.h"

namespace dltrain {
namespace {

// Rows may be sharded.
std::optional<std::vector<Placement>> place_row_norms(SpecSpan, const Attributes&,
                                                      std::span<const Placement> p) {
  if (p[0].kind != Placement::sharded || p[0].dimension != 0 || !(p[0] == p[1])) return {};
  return {{p[0]}};
}

}  // namespace

constinit const OpDef kRowNormsOp{.name = "row_norms",
                                  .doc = "norm = ‖w + scale·p‖ of each row",
                                  .signature = "w[N,K] p[N,K] -> norm[N]",
                                  .place = place_row_norms,
                                  .cost = cost_an_element<4>};

}  // namespace dltrain
