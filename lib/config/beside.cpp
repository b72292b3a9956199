#include "config/beside.h"

namespace dltrain {
namespace fs = std::filesystem;

fs::path beside_configuration(const Place& place, const std::string& given,
                              const std::function<bool(const fs::path&)>& is_there) {
  const fs::path path = given;
  if (path.is_absolute() || !place.known() || place.source->is_override) return path;
  const fs::path beside = fs::path(place.source->name).parent_path() / path;
  return is_there(beside) ? beside : path;
}

}  // namespace dltrain
