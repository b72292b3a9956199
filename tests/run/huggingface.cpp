// model.from on folders that transformers wrote (scripts/record_golden_huggingface.py): logits.
#include <cstring>
#include <filesystem>

#include "catch.h"
#include "checkpoint/run_folder.h"
#include "config/dump.h"
#include "config/load.h"
#include "cpu/engine.h"
#include "max_or_inf.h"
#include "reference/engine.h"
#include "run/session.h"
#include "temporary_folder.h"

namespace dltrain {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = DLTRAIN_SOURCE_DIR "/tests/golden";

Experiment read_experiment(const fs::path& folder, const std::string& model) {
  const bool bert = folder.filename().string().starts_with("bert");
  const std::string inputs =
      bert ? "{input: input, attention_mask: attention_mask}" : std::string("input");
  const std::string split =
      fmt::format("{{type: tensors, path: '{}', inputs: {}, targets: target}}",
                  (folder / "logits.safetensors").string(), inputs);
  return load_config<Experiment>(
      {.files = {},
       .overrides = {"model=" + model, fmt::format("data={{train: {0}, eval: {0}}}", split),
                     "optimizer={type: adamw, learning_rate: 0.01}",
                     "training={global_batch_size: 2, max_steps: 1}", "device=cpu"}});
}

Session open_model(Experiment& experiment) {
  Session session = open_session(
      experiment, {.engines = {.cpu = &cpu_engine(), .reference = &reference_engine()}});
  start_session(session);
  return session;
}

std::vector<double> logits(Session& session) {
  EvalLoader loader(session.data.eval, session.batch.micro_batch, 0, 1, session.executor->device(),
                    {}, session.eval_targets);
  loader.start();
  session.executor->evaluate(loader.next()->fields, 0, true);
  return session.executor->evaluation_output();
}

double greatest_distance(const std::vector<double>& found, const fs::path& folder) {
  const SafetensorsFile file(folder / "logits.safetensors", ExitCode::data);
  const auto bytes = file.data(file.at("logits"));
  std::vector<float> expected(bytes.size() / sizeof(float));
  std::memcpy(expected.data(), bytes.data(), bytes.size());
  REQUIRE(found.size() == expected.size());
  double most = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    most = max_or_inf(most, std::abs(found[i] - expected[i]));
  }
  return most;
}

TEST_CASE("models of hugging face folders have transformers' logits") {
  std::vector<fs::path> folders;
  for (const char* kind : {"huggingface", "vision_folders"}) {
    for (const auto& entry : fs::directory_iterator(kGolden / kind)) {
      folders.push_back(entry.path());
    }
  }
  for (const fs::path& folder : folders) {
    INFO(folder.filename());
    Experiment experiment = read_experiment(folder, fmt::format("{{from: '{}'}}", folder.string()));
    Session session = open_model(experiment);
    CHECK(greatest_distance(logits(session), folder) < 1e-5);
  }
  CHECK(folders.size() == 16);
}

}  // namespace
}  // namespace dltrain
