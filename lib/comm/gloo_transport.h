// Gloo as a Transport; see comm/gloo.h for the public interface.
#pragma once

#include <memory>

#include "comm/gloo.h"
#include "comm/transport.h"

namespace dltrain {

std::unique_ptr<Transport> connect_gloo(StoreClient& store, const GlooOptions& options);

}  // namespace dltrain
