// What LARS and LAMB share: the trust ratio, which scales the step of a tensor to its norm.
#pragma once

#include <utility>

#include "optim/optimizer.h"

namespace dltrain {

struct TrustRatioOptimizer : Optimizer {
  bool always_adapt = false;

  bool adapts_decayed_only() const override { return !always_adapt; }

 protected:
  // `plain`: whose step a tensor takes that is not scaled.
  void describe_adaptation(Fields& f, const std::string& plain) {
    f.boolean("always_adapt", always_adapt,
              {.doc = "Scale tensors without decay too, as the papers do. Otherwise, as NVIDIA's "
                      "and timm's implementations, they take the step of " +
                      plain + ", and without any decay all do",
               .known_as = {"use_nvlamb", "trust_without_decay"}});
  }
  // The attributes of the update op.
  Attributes with_adaptation(Attributes own) const {
    if (always_adapt) own.set("always_adapt", true);
    return own;
  }
};

}  // namespace dltrain
