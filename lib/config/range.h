// The limits of a Key: the check, and the words that the message and the reference both use.
#pragma once

#include <string>

#include "config/fields.h"

namespace dltrain {

bool in_range(double value, const Key& key);

// "at least 1", "above 0 and at most 1", "-1 or above and below 8"; `slot` adds the limits of the
// member's integer type where the key has none. Empty: no limit.
std::string describe_range(const Key& key, const ValueSlot* slot);

// "2 elements", "at least 1 element", "1 to 3 elements"; empty: any number.
std::string describe_size(const Key& key);

}  // namespace dltrain
