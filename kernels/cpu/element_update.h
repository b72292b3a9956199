// The loops over optimizers' element rules (shared/element_rules.h), for the instruction set of
// this machine.
#pragma once

#include <tuple>

#include "shared/element_rules.h"

namespace dltrain {

// (factors, start of the chunk in the parameter, the gradient and each moment, elements)
template <typename Rule>
using ElementFunction = void (*)(const typename Rule::template Factors<float>& factors,
                                 float* const* tensors, int64_t count);

// List<every element rule>.
template <template <typename...> typename List>
using OverElementRules =
    List<SgdRule<Momentum::none>, SgdRule<Momentum::plain>, SgdRule<Momentum::nesterov>,
         AdamRule<false>, AdamRule<true>, AdagradRule, RmspropRule<false, false>,
         RmspropRule<false, true>, RmspropRule<true, false>, RmspropRule<true, true>, LionRule>;

template <typename... Rules>
using ElementFunctionsOf = std::tuple<ElementFunction<Rules>...>;
using ElementFunctions = OverElementRules<ElementFunctionsOf>;

ElementFunctions element_functions();

template <typename Rule>
ElementFunction<Rule> element_function(const Rule&) {
  return std::get<ElementFunction<Rule>>(element_functions());
}

}  // namespace dltrain
