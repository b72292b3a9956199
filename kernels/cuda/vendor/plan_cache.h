// Plans of vendor libraries by the text that describes their problem: kernels of equal layers share
// one, which therefore stores no addresses. A plan lives as long as a kernel that uses it; a
// refusal is remembered with its reason.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace dltrain {

class PlanCache {
 public:
  // Returns the plan for `key`, which determines its type: one in use or the result of make(why).
  // nullptr if the library refuses it; `why` is then its reason.
  template <typename Plan, typename Make>
  std::shared_ptr<Plan> get(const std::string& key, std::string& why, const Make& make) {
    Known& known = known_[key];
    auto plan = std::static_pointer_cast<Plan>(known.plan.lock());
    if (plan == nullptr && known.why.empty()) {
      plan = make(known.why);
      known.plan = plan;
      if (plan != nullptr) known.why.clear();
      if (plan == nullptr && known.why.empty()) known.why = "no plan can be built";
    }
    if (plan == nullptr) why = known.why;
    return plan;
  }

 private:
  struct Known {
    std::weak_ptr<void> plan;
    std::string why;  // of a refusal
  };
  std::map<std::string, Known> known_;
};

}  // namespace dltrain
