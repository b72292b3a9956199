// Advice of `dltrain check` about settings that are valid and work, but are often not what one
// would choose knowing their effect.
#pragma once

#include <string>
#include <vector>

#include "run/session.h"

namespace dltrain {

// Collects what a forward graph suggests; its probe() sees the graph when a session is opened.
class Suggestions {
 public:
  GraphProbe probe();
  // Returns advice about the inspected graph and the settings of its session, one sentence each.
  std::vector<std::string> of(const Session& session) const;

 private:
  void inspect(const StepGraph& step);

  std::string dropout_before_norm_;  // the layers of the first such pair
  std::string norm_after_sum_;       // the last norm on the residual path
  std::string joined_linear_;  // a linear layer whose input is that of another one; both learn
  std::string clipped_;        // "attention" or "recurrent layers": gradients can explode
};

}  // namespace dltrain
