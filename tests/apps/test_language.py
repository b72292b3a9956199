"""Small language models against Hugging Face's runs recorded by scripts/record_golden_language.py."""
import json
import re
import shutil

import support
from support import SOURCES, steps

# Relative. PyTorch's own runs in f32 and f64 are at most 2e-6 apart; the rest is room for sums in another order.
TOLERANCE = 1e-5
GOLDEN = "tests/golden/language"

FOLDERS = ("bert", "gpt2", "llama", "mixtral", "qwen2", "qwen3", "qwen3_moe")  # families whose folders are read
MODELS = ("albert", *FOLDERS)


class Language(support.DltrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())

    def run_model(self, name, folder, *arguments, model=None):
        text = (SOURCES / GOLDEN / f"{name}.yaml").read_text()
        if model:
            text = re.sub(r"model:\n(  .*\n)+", f"model: {model}\n", text)
        configuration = self.write(f"{name}.yaml", text)
        run = self.folder / folder
        self.run_dltrain(configuration, "-q", "--output-dir", run, *arguments)
        return steps(run)

    def check(self, name, lines, tolerance=TOLERANCE):
        self.assertEqual(len(lines), self.golden["steps"])
        for i, line in enumerate(lines):
            for series in ("loss", "grad_norm"):
                expected = self.golden["cases"][name]["f64"][series][i]
                self.assertLessEqual(abs(line[series] - expected), tolerance * expected, f"{name} {series}, step {i + 1}")

    def test_language_models_have_the_trajectory_of_torch(self):
        self.assertEqual(sorted(self.golden["cases"]), list(MODELS))
        for name in MODELS:
            self.check(name, self.run_model(name, name))

    def test_folders_of_hugging_face_train_on_as_in_torch(self):
        for name in FOLDERS:
            folder = self.folder / f"{name}-folder"
            folder.mkdir()
            shutil.copy(SOURCES / GOLDEN / f"{name}.json", folder / "config.json")
            shutil.copy(SOURCES / GOLDEN / f"{name}.safetensors", folder / "model.safetensors")
            keys = {"bert": ", dropout: 0, attention_dropout: 0, attention_mask: true",
                    "mixtral": ", balance_loss: 0.1, router_z_loss: 0.01"}.get(name, "")
            self.check(name, self.run_model(name, f"{name}-from", model=f"{{from: {folder}{keys}}}"))

    def test_language_models_do_not_depend_on_the_micro_batch_or_on_ranks(self):
        for name in ("gpt2", "bert"):
            self.check(name, self.run_model(name, f"{name}-micro", "-s", "training.micro_batch_size=1"))
            self.check(name, self.run_model(name, f"{name}-ranks", "--nproc-per-node", "2"))

    def test_language_models_divided_by_heads_have_the_trajectory_of_torch(self):
        for name in MODELS:
            self.check(name, self.run_model(name, f"{name}-tensor", "--nproc-per-node", "2", "-s", "parallelism.tensor=2"))

    def test_language_models_divided_by_tokens_have_the_trajectory_of_torch(self):
        for name in MODELS:
            self.check(name, self.run_model(name, f"{name}-context", "--nproc-per-node", "2", "-s", "parallelism.context=2"))

    def test_language_models_in_bf16_stay_near(self):
        for name in MODELS:
            self.check(name, self.run_model(name, f"{name}-bf16", "-s", "precision.compute=bf16"), 0.1)

    def test_the_load_of_experts_is_in_the_metrics(self):
        for line in self.run_model("mixtral", "load", "--max-steps", "3"):
            self.assertEqual(list(line["expert_load"]), ["model.layers.0.mlp", "model.layers.1.mlp"])
            for load in line["expert_load"].values():
                self.assertEqual(len(load), 4)
                self.assertAlmostEqual(sum(load), 2, delta=1e-6)  # experts_per_token
                self.assertLessEqual(max(load), line["max_expert_load"] + 1e-8)
            self.assertGreater(line["balance_loss"], 0)
            self.assertLess(line["router_entropy"], 1.3863)  # ln 4

    def test_the_vocabulary_of_the_data_stands_in_the_run(self):
        configuration = self.write("vocabulary.yaml", """
name: vocabulary
model: {type: gpt2, num_layers: 1, hidden_size: 16, num_heads: 2, max_positions: 24}
loss: {type: cross_entropy, z_loss: 1.0e-4}
data: {type: tensors, path: tests/golden/language/batches.safetensors, inputs: input, targets: target}
optimizer: {type: adamw, learning_rate: 0.01}
training: {global_batch_size: 4, max_steps: 2}
""")
        run = self.folder / "vocabulary"
        self.run_dltrain(configuration, "-q", "--output-dir", run)
        self.assertIn("vocab_size: 61", (run / "config.yaml").read_text())
        self.run_dltrain(run / "config.yaml", "-q", "--output-dir", self.folder / "again")
        self.run_dltrain(run / "config.yaml", "-q", "--output-dir", run, "--resume", "auto", "--max-steps", "3")


if __name__ == "__main__":
    support.main()
