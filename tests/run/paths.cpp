// Texts that name files are marked as paths, so that the resolved configuration has them absolute.
#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "config/key_index.h"
#include "experiment/experiment.h"

using namespace dltrain;

TEST_CASE("every key that is named like a path is one") {
  const std::vector<std::string> names{"path", "file", "folder", "init_from", "images"};
  Experiment experiment;
  int paths = 0;
  for (const IndexedKey& key : all_keys(ObjectRef::of(experiment))) {
    INFO(key.name << " " << key.path);
    const bool named = std::find(names.begin(), names.end(), key.name) != names.end() ||
                       key.name.ends_with("_path") || key.name.ends_with("_file");
    CHECK((!named || key.is_path));
    paths += key.is_path;
  }
  CHECK(paths >= 3);
}
