// The teachers of a distillation loss.
#pragma once

#include "run/session.h"

namespace dltrain {

// Opens the teachers that the loss names, unless the options are without, and sets the loss's paths
// to their checkpoints. Throws Error(usage) if one was trained with other columns, classes or
// tokens.
void open_teachers(Session& session);

}  // namespace dltrain
