// The loops over optimizers' element rules (shared/element_rules.h), for the instruction set of
// this machine.
#pragma once

#include <tuple>

#include "shared/update_groups.h"

namespace dltrain {

// (factors, start of the chunk in the parameter, the gradient and each moment, elements)
template <typename Rule>
using ElementFunction = void (*)(const typename Rule::template Factors<float>& factors,
                                 float* const* tensors, int64_t count);

template <typename... Rules>
using ElementFunctionsOf = std::tuple<ElementFunction<Rules>...>;
using ElementFunctions = OverElementRules<ElementFunctionsOf>;

ElementFunctions element_functions();

template <typename Rule>
ElementFunction<Rule> element_function(const Rule&) {
  return std::get<ElementFunction<Rule>>(element_functions());
}

}  // namespace dltrain
