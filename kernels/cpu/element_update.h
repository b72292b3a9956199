// The loops over optimizers' element rules (shared/element_rules.h), for the instruction set of
// this machine.
#pragma once

#include "shared/element_rules.h"

namespace dltrain {

// (factors, where a chunk begins in the parameter, the gradient and each moment, elements)
template <typename Rule>
using ElementFunction = void (*)(const typename Rule::template Factors<float>& factors,
                                 float* const* tensors, int64_t count);

ElementFunction<SgdRule<Momentum::none>> element_function(const SgdRule<Momentum::none>&);
ElementFunction<SgdRule<Momentum::plain>> element_function(const SgdRule<Momentum::plain>&);
ElementFunction<SgdRule<Momentum::nesterov>> element_function(const SgdRule<Momentum::nesterov>&);
ElementFunction<AdamRule<false>> element_function(const AdamRule<false>&);
ElementFunction<AdamRule<true>> element_function(const AdamRule<true>&);
ElementFunction<AdagradRule> element_function(const AdagradRule&);
ElementFunction<RmspropRule<false, false>> element_function(const RmspropRule<false, false>&);
ElementFunction<RmspropRule<false, true>> element_function(const RmspropRule<false, true>&);
ElementFunction<RmspropRule<true, false>> element_function(const RmspropRule<true, false>&);
ElementFunction<RmspropRule<true, true>> element_function(const RmspropRule<true, true>&);
ElementFunction<LionRule> element_function(const LionRule&);

}  // namespace dltrain
