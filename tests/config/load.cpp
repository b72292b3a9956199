#include "config/load.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>

#include "catch.h"
#include "read.h"

using namespace dltrain;
using namespace dltrain::example;
namespace fs = std::filesystem;

namespace {

constexpr const char* kBase =
    "model: {layers: [{linear: 4}, relu]}\n"
    "optimizer: {type: adamw, learning_rate: 0.5, betas: [0.8, 0.9]}\n"
    "training: {global_batch_size: 8}\n";

// A folder of configuration files that is gone afterwards.
class Folder {
 public:
  Folder() {
    root_ = fs::temp_directory_path() / fmt::format("dltrain-config-{}", std::random_device{}());
    fs::create_directories(root_);
  }
  ~Folder() { fs::remove_all(root_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
    return root_ / name;
  }
  fs::path path(const std::string& name) const { return root_ / name; }

  // Returns the errors of load_config() without the folder's own path.
  std::string mistakes(const ConfigInputs& inputs) const {
    try {
      load_config<Experiment>(inputs);
    } catch (const ConfigError& error) {
      CHECK(error.code() == ExitCode::usage);
      std::string text = error.what();
      const std::string prefix = root_.string() + "/";
      for (size_t at; (at = text.find(prefix)) != std::string::npos;) text.erase(at, prefix.size());
      return text;
    }
    return "";
  }

 private:
  fs::path root_;
};

EnvironmentLookup variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    return found->second;
  };
}

const AdamW& adamw(const Experiment& experiment) {
  return dynamic_cast<const AdamW&>(*experiment.optimizer);
}

}  // namespace

TEST_CASE("later files are laid upon earlier ones") {
  const Folder folder;
  const auto base = folder.write("base.yaml", kBase);
  SECTION("maps merge, lists and scalars replace") {
    const auto over = folder.write("over.yaml",
                                   "optimizer: {learning_rate: 0.25}\n"
                                   "model: {layers: [relu]}\nseed: 3\n");
    const auto experiment = load_config<Experiment>({.files = {base, over}});
    CHECK(adamw(experiment).learning_rate == 0.25);
    CHECK(adamw(experiment).betas[0] == 0.8);
    CHECK(experiment.model.layers.size() == 1);
    CHECK(experiment.seed == 3);
    CHECK(experiment.optimizer->location_of("learning_rate").source->name == over.string());
    CHECK(experiment.optimizer->location_of("betas").source->name == base.string());
  }
  SECTION("another type replaces the whole map, the same type does not") {
    const auto sgd = folder.write("sgd.yaml", "optimizer: {type: sgd}\n");
    const auto changed = load_config<Experiment>({.files = {base, sgd}});
    CHECK(changed.optimizer->kind == "sgd");
    CHECK(changed.optimizer->learning_rate == Optimizer{}.learning_rate);
    const auto same = folder.write("same.yaml", "optimizer: {type: adamw, weight_decay: 1}\n");
    CHECK(load_config<Experiment>({.files = {base, same}}).optimizer->learning_rate == 0.5);
  }
}

TEST_CASE("a file extends others, relative to itself") {
  const Folder folder;
  folder.write("common/base.yaml", kBase);
  folder.write("common/seed.yaml", "seed: 5\nname: common\n");
  const auto file = folder.write("runs/exp.yaml",
                                 "extends: [../common/base.yaml, ../common/seed.yaml]\n"
                                 "name: mine\n");
  const auto experiment = load_config<Experiment>({.files = {file}});
  CHECK(experiment.seed == 5);
  CHECK(experiment.name == "mine");
  CHECK(adamw(experiment).learning_rate == 0.5);

  SECTION("through a variable") {
    const auto other = folder.write("runs/other.yaml", "extends: ${WHERE}/base.yaml\n");
    const EnvironmentLookup environment = variables({{"WHERE", "../common"}});
    CHECK(load_config<Experiment>({.files = {other}, .environment = environment}).seed == 0);
  }
  SECTION("a missing one is reported where it was asked for") {
    const auto other = folder.write("runs/other.yaml", "extends: base.yaml\n");
    CHECK(folder.mistakes({.files = {other}}) ==
          fmt::format("runs/other.yaml:1:10: error: No such file or folder: base.yaml (looked in "
                      "runs and {})\n"
                      "    1 | extends: base.yaml\n"
                      "      |          ^~~~~~~~~",
                      std::filesystem::current_path().string()));
  }
  SECTION("a circle is shown") {
    folder.write("a.yaml", "extends: b.yaml\n");
    folder.write("b.yaml", "extends: [common/base.yaml, c.yaml]\n");
    folder.write("c.yaml", "extends: ./a.yaml\n");
    CHECK(folder.mistakes({.files = {folder.path("a.yaml")}}) ==
          "c.yaml:1:10: error: 'extends' forms a cycle: a.yaml -> b.yaml -> c.yaml -> "
          "a.yaml\n"
          "    1 | extends: ./a.yaml\n"
          "      |          ^~~~~~~~");
  }
  SECTION("doubling files end") {
    for (int i = 0; i < 20; ++i) {
      folder.write(fmt::format("{}.yaml", i),
                   fmt::format("extends: [{0}.yaml, {0}.yaml]\n", i + 1));
    }
    folder.write("20.yaml", "seed: 1\n");
    CHECK_THAT(folder.mistakes({.files = {folder.path("0.yaml")}}),
               Catch::Contains("more than 100 configuration files"));
  }
  SECTION("keys x-… at the top hold anchors") {
    const auto shared = folder.write("shared.yaml",
                                     "x-common: &c {momentum: 0.5}\nextends: [common/base.yaml]\n"
                                     "second: {<<: *c, type: sgd}\n");
    const auto experiment = load_config<Experiment>({.files = {shared}});
    CHECK(dynamic_cast<const Sgd&>(*experiment.second).momentum == 0.5);
  }
  SECTION("only paths can be extended") {
    const auto other = folder.write("runs/other.yaml", "extends: {a: b}\n");
    CHECK_THAT(folder.mistakes({.files = {other}}),
               Catch::Contains("expected the path of a file for extends, got a map"));
  }
}

TEST_CASE("overrides set keys at any depth") {
  const Folder folder;
  const auto base = folder.write("base.yaml", kBase);
  const auto load = [&](std::vector<std::string> overrides) {
    return load_config<Experiment>({.files = {base}, .overrides = std::move(overrides)});
  };
  CHECK(load({"optimizer.learning_rate=3e-4"}).optimizer->learning_rate == 3e-4);
  CHECK(adamw(load({"optimizer.betas=[0.1, 0.2]"})).betas[1] == 0.2);
  CHECK(load({"name=a=b"}).name == "a=b");
  CHECK(load({"name=,"}).name == ",");
  CHECK(load({"name= try issue #12 again "}).name == "try issue #12 again");
  CHECK(load({"--name name=#12"}).name == "#12");
  CHECK(load({"optimizer={weight_decay: 2}"}).optimizer->weight_decay == 2);
  CHECK(load({"optimizer={weight_decay: 2}"}).optimizer->learning_rate == 0.5);
  CHECK(load({"second.type=sgd", "second.momentum=0.5"}).second->kind == "sgd");
  CHECK(load({"training.early_stopping.patience=2"}).training.early_stopping->patience == 2);
  CHECK_FALSE(load({"training.max_steps=null"}).training.max_steps);

  SECTION("in lists, whichever form the element has") {
    const auto experiment = load({"model.layers[0].features=9", "model.layers[0].bias=false"});
    const auto& linear = dynamic_cast<const Linear&>(*experiment.model.layers[0]);
    CHECK(linear.features == 9);
    CHECK_FALSE(linear.bias);
    const auto replaced = load({"model.layers[1]={dropout: 0.1}"});
    CHECK(replaced.model.layers[1]->kind == "dropout");
    const auto other = load({"model.layers[0]={type: dropout, probability: 0.2}"});
    CHECK(other.model.layers[0]->kind == "dropout");
    const auto changed = load({"model.layers[1].type=dropout", "model.layers[1].probability=0.1"});
    CHECK(dynamic_cast<const Dropout&>(*changed.model.layers[1]).probability == 0.1);
  }
  SECTION("null clears what is empty by default") {
    const auto experiment = load({"training.freeze=[a]", "training.freeze=", "groups=[a]",
                                  "groups=null", "model.rename={a: b}", "model.rename=null"});
    CHECK(experiment.training.freeze.empty());
    CHECK(experiment.groups.empty());
    CHECK(experiment.model.rename.empty());
  }
  SECTION("beside the short form of a section") {
    const auto short_form = folder.write("short.yaml", std::string(kBase) + "groups: [bias]\n");
    const auto experiment = load_config<Experiment>(
        {.files = {short_form}, .overrides = {"groups[0].weight_decay=0.5"}});
    CHECK(experiment.groups[0].pattern == "bias");
    CHECK(experiment.groups[0].weight_decay == 0.5);
  }
  SECTION("a change of type comes first wherever it stands") {
    const auto experiment = load({"optimizer.momentum=0.9", "optimizer.type=sgd"});
    CHECK(dynamic_cast<const Sgd&>(*experiment.optimizer).momentum == 0.9);
  }
  SECTION("a change of type keeps the keys that the new type has, and names the others") {
    Diagnostics diagnostics;
    Experiment experiment;
    const auto tree =
        load_tree({.files = {base}, .overrides = {"optimizer.type=sgd"}}, diagnostics);
    bind(experiment, *tree, diagnostics);
    CHECK(diagnostics.empty());
    CHECK(experiment.optimizer->kind == "sgd");
    CHECK(experiment.optimizer->learning_rate == 0.5);
    REQUIRE(diagnostics.warnings().size() == 1);
    CHECK(diagnostics.warnings()[0] ==
          "optimizer.type=sgd instead of adamw drops the key betas of optimizer; type sgd has no "
          "such key");
    CHECK(load({"optimizer={type: sgd}"}).optimizer->learning_rate == Optimizer{}.learning_rate);
  }
}

TEST_CASE("files in UTF-16 are called so") {
  const Folder folder;
  for (const std::string& text :
       {std::string("\xFF\xFEn\0a\0m\0e\0", 10), std::string("\0n\0a\0m\0e", 8)}) {
    const auto file = folder.write("wide.yaml", text);
    CHECK_THAT(folder.mistakes({.files = {file}}), Catch::Contains("is UTF-16; save it as UTF-8"));
  }
}

TEST_CASE("a file that is not there is told with the nearest one that is") {
  const Folder folder;
  const auto base = folder.write("base.yaml", kBase);
  CHECK_THAT(folder.mistakes({.files = {base.parent_path() / "bsae.yaml"}}),
             Catch::Contains("No such file or directory; did you mean base.yaml"));
}

TEST_CASE("errors in overrides point into the override") {
  const Folder folder;
  const auto base = folder.write("base.yaml", kBase);
  const auto mistakes = [&](std::vector<std::string> overrides) {
    return folder.mistakes({.files = {base}, .overrides = std::move(overrides)});
  };
  CHECK(mistakes({"optimizer.lr=3"}) ==
        "-s optimizer.lr=3: error: unknown key 'lr' in optimizer (type adamw); did you mean "
        "'learning_rate'?\n"
        "   -s | optimizer.lr=3\n"
        "      |           ^~");
  CHECK(mistakes({"optimizer.learning_rate=fast"}) ==
        "-s optimizer.learning_rate=fast: error: expected a number for optimizer.learning_rate, "
        "got the text 'fast'\n"
        "   -s | optimizer.learning_rate=fast\n"
        "      |                         ^~~~");
  CHECK(mistakes({"--rate optimizer.learning_rate=fast"}) ==
        "--rate fast: error: expected a number for optimizer.learning_rate, got the text 'fast'\n"
        "   -s | optimizer.learning_rate=fast\n"
        "      |                         ^~~~");
  CHECK_THAT(mistakes({"seed"}), Catch::Contains("-s seed: error: expected KEY=VALUE"));
  CHECK_THAT(mistakes({""}), Catch::Contains("expected KEY=VALUE"));
  CHECK_THAT(mistakes({"=3"}), Catch::Contains("expected a key here"));
  CHECK_THAT(mistakes({"optimizer..x=3"}), Catch::Contains("expected a key here"));
  CHECK_THAT(mistakes({"model.layers[x]=3"}), Catch::Contains("expected an index such as [0]"));
  CHECK_THAT(mistakes({"model.layers[0"}), Catch::Contains("expected KEY=VALUE"));
  CHECK_THAT(mistakes({"model.layers[0=3"}), Catch::Contains("expected an index such as [0]"));
  CHECK_THAT(mistakes({"model.layers[7]=relu"}),
             Catch::Contains("model.layers has 2 elements, none at [7]"));
  CHECK_THAT(mistakes({"model.layers[99999999999999999999]=relu"}),
             Catch::Contains("expected an index such as [0]"));
  CHECK_THAT(mistakes({"model[0]=relu"}), Catch::Contains("model is a map, not a list"));
  CHECK(mistakes({"training.freeze[0]=a"}) ==
        "-s training.freeze[0]=a: error: training.freeze is not in the file; give the whole list: "
        "-s 'training.freeze=[…]'\n"
        "   -s | training.freeze[0]=a\n"
        "      |          ^~~~~~");
  CHECK_THAT(mistakes({"optimizer.betas=null"}),
             Catch::Contains("expected a list of numbers for optimizer.betas, got nothing"));
  CHECK_THAT(mistakes({"model.layers.x=relu"}),
             Catch::Contains("model.layers is a list; it has no key 'x'"));
  CHECK_THAT(mistakes({"training.global_batch_size.x=1"}),
             Catch::Contains("training.global_batch_size is the number 8; it has no key 'x'"));
  CHECK_THAT(mistakes({"optimizer.betas=[1"}), Catch::Contains("not valid YAML"));
  CHECK_THAT(mistakes({"name="}), Catch::Contains("expected text for name, got nothing"));
  CHECK_THAT(mistakes({"seed=x", "optimizer.lr=3"}),
             Catch::Contains("-s seed=x") && Catch::Contains("-s optimizer.lr=3"));
}

TEST_CASE("environment variables expand in values") {
  const Folder folder;
  const auto load = [&](const std::string& text) {
    return load_config<Experiment>(
        {.files = {folder.write("exp.yaml", kBase + text)},
         .environment = variables({{"USER", "ada"}, {"SEED", "3"}, {"EMPTY", ""}})});
  };
  CHECK(load("name: run-${USER}-${SEED}").name == "run-ada-3");
  CHECK(load("seed: ${SEED}").seed == 3);
  CHECK(load("seed: ${OTHER:-4}").seed == 4);
  CHECK(load("seed: ${EMPTY:-4}").seed == 4);
  CHECK(load("name: ${OTHER:-}x").name == "x");
  CHECK(load("name: $${USER} $USER").name == "${USER} $USER");
  CHECK(load("name: $$${USER}").name == "$${USER}");
  // Braces must be quoted inside { }: a whole reference is still a number there.
  CHECK(load("second: {type: sgd, momentum: \"${OTHER:-0.5}\"}").second->kind == "sgd");
  CHECK(load("name: \"${SEED}\"").name == "3");
}

TEST_CASE("bad references to the environment are located") {
  const Folder folder;
  const auto mistakes = [&](const std::string& text) {
    return folder.mistakes({.files = {folder.write("exp.yaml", kBase + text)},
                            .environment = variables({{"WORD", "abc"}})});
  };
  CHECK(mistakes("seed: ${NOWHERE}\n") ==
        "exp.yaml:4:7: error: the environment variable NOWHERE is not set; write "
        "${NOWHERE:-VALUE} to give a default, or $${NOWHERE} to keep the reference as text (for a "
        "shell)\n"
        "    4 | seed: ${NOWHERE}\n"
        "      |       ^~~~~~~~~~");
  CHECK_THAT(mistakes("name: ${no way}"), Catch::Contains("is not a variable name"));
  CHECK_THAT(mistakes("name: a${b"), Catch::Contains("'${' without '}'"));
  CHECK_THAT(mistakes("seed: ${WORD}"), Catch::Contains("got the text 'abc'"));
  // A value that is replaced need not be known.
  CHECK(folder.mistakes({.files = {folder.write("exp.yaml", std::string(kBase) + "seed: ${NO}")},
                         .overrides = {"seed=1"}}) == "");
}

TEST_CASE("files that cannot be read end in one clear message") {
  const Folder folder;
  CHECK(folder.mistakes({.files = {folder.path("none.yaml")}}) ==
        "dltrain: error: cannot read none.yaml: No such file or directory");
  fs::create_directories(folder.path("dir.yaml"));
  CHECK(folder.mistakes({.files = {folder.path("dir.yaml")}}) ==
        "dltrain: error: cannot read dir.yaml: it is a folder");
  CHECK_THAT(
      folder.mistakes({.files = {folder.write("iris.csv", "a,b\n1,2\n")}}),
      Catch::Contains("iris.csv: it is a table, not an experiment file (YAML); `dltrain init"));
  CHECK_THAT(folder.mistakes({.files = {folder.write("big.yaml", std::string(65 << 20, '#'))}}),
             Catch::Contains("big.yaml:1:1: error: larger than 67108864 bytes"));
  // The resolved configuration of a run may be large.
  CHECK(folder.mistakes(
            {.files = {folder.write("large.yaml", kBase + std::string(2 << 20, '#'))}}) == "");
  CHECK_THAT(folder.mistakes({.files = {folder.write("list.yaml", "- a\n- b\n")}}),
             Catch::Contains("list.yaml:1:1: error: expected a map of sections, got a list"));
  CHECK_THAT(folder.mistakes({.files = {folder.write("empty.yaml", "")}}),
             Catch::Contains("empty.yaml:1:1: error: missing key 'model'"));
  CHECK_THAT(folder.mistakes({.files = {}}), Catch::Contains("error: missing key 'model'"));
}

TEST_CASE("a byte order mark and Windows line ends do not matter") {
  const Folder folder;
  const auto file = folder.write("exp.yaml",
                                 "\xEF\xBB\xBFname: a\r\nmodel: {layers: [relu]}\r\n"
                                 "training:\r\n  global_batch_size: 8\r\n");
  CHECK(load_config<Experiment>({.files = {file}}).name == "a");
  const auto bad = folder.write("bad.yaml", "\xEF\xBB\xBFname: a\r\nmodell: 3\r\n");
  CHECK_THAT(folder.mistakes({.files = {bad}}),
             Catch::Contains("bad.yaml:2:1: error: unknown key 'modell'; did you mean 'model'?\n"
                             "    2 | modell: 3\n"));
}
