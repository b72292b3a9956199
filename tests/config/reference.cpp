// The reference and the schema are written from the structs; these tests hold them to the parser.
#include "config/reference.h"

#include <set>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "config/key_index.h"
#include "config/schema.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;
using Json = nlohmann::json;

namespace {

void each_object(const Json& node, const std::function<void(const Json&)>& use) {
  if (node.is_object()) use(node);
  for (const Json& inner : node) {
    if (inner.is_structured()) each_object(inner, use);
  }
}

}  // namespace

TEST_CASE("every key has a row in the reference and a property in the schema") {
  Experiment experiment;
  const std::string reference = config_reference<Experiment>();
  std::set<std::string> properties;
  each_object(Json::parse(config_schema<Experiment>("test")), [&](const Json& object) {
    if (!object.contains("properties")) return;
    for (const auto& [name, schema] : object["properties"].items()) properties.insert(name);
  });
  const auto keys = all_keys(ObjectRef::of(experiment));
  CHECK(keys.size() > 25);
  for (const IndexedKey& key : keys) {
    INFO(key.name);
    CHECK_THAT(reference, Catch::Contains("\n| `" + key.name + "` | "));
    CHECK(properties.contains(key.name));
  }
}

TEST_CASE("the reference gives type, default, limits and meaning") {
  const std::string reference = config_reference<Experiment>();
  for (const std::string row :
       {"| `seed` | integer | `0` | at least 0 | Of all random numbers |\n",
        "| `optimizer` | optimizer ([kinds](#optimizer)) | `adamw` |  | The update rule |\n",
        "| `global_batch_size` | integer | required | at least 1 | Samples a step |\n",
        "| `micro_batch_size` | integer or `auto` | none | at least 1 | Samples of a rank at a "
        "time |\n",
        "| `reduction` | choice | `fast` | `fast`, `fixed` (Bit-identical) | Order of sums |\n",
        "| `betas` | list of numbers | `[0.9, 0.999]` | 2 elements, each at least 0 and below 1 "
        "| Decay of both moments |\n",
        "| `kernel_size` | list of integers, or one alone | `[3, 3]` | 1 to 2 elements, each at "
        "least 1 | Height and width |\n",
        "### `training.early_stopping`\n", "## layer\n", "### layer `residual`\n",
        "In short: `linear: VALUE` sets `features`.\n"}) {
    CHECK_THAT(reference, Catch::Contains(row));
  }
}

TEST_CASE("the schema's references resolve and its defaults are right") {
  const Json schema = Json::parse(config_schema<Experiment>("test"));
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  each_object(schema, [&](const Json& object) {
    if (!object.contains("$ref") || !object["$ref"].is_string()) return;
    const std::string reference = object["$ref"];
    REQUIRE(reference.starts_with("#/$defs/"));
    CHECK(schema["$defs"].contains(reference.substr(8)));
  });
  CHECK(schema["properties"]["seed"]["default"] == 0);
  CHECK(schema["properties"]["name"]["description"] == "Name of the run");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["patternProperties"].contains("^x-"));
}
