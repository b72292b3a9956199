"""Small language models against Hugging Face's runs recorded by scripts/record_golden_language.py."""
import json
import shutil

import support
from support import SOURCES, steps

# Relative. PyTorch's own runs in f32 and f64 are at most 2e-6 apart; the rest is room for sums in another order.
TOLERANCE = 1e-5
GOLDEN = "tests/golden/language"

SMALL = "num_layers: 2, hidden_size: 32, num_heads: 4, num_kv_heads: 2, intermediate_size: 48"
MODELS = {
    "gpt2": "{type: gpt2, num_layers: 2, hidden_size: 32, num_heads: 4, max_positions: 32, ",
    "llama": f"{{type: llama, {SMALL}, rope_theta: 1000, rope_scaling: {{type: llama3, factor: 4, low_freq_factor: 1, "
             "high_freq_factor: 4, original_max_positions: 16}, ",
    "qwen2": f"{{type: qwen2_5_0_5b, {SMALL}, rope_theta: 10000, ",
    "qwen3": f"{{type: qwen3_0_6b, {SMALL}, head_dim: 16, rope_theta: 10000, tie_word_embeddings: false, ",
    "bert": "{type: bert, num_layers: 2, hidden_size: 32, num_heads: 4, intermediate_size: 48, max_positions: 32, dropout: 0, "
            "attention_mask: true, ",
}

CONFIGURATION = """
name: golden-language
model: {model}
loss: {{type: cross_entropy}}
data: {{type: tensors, path: {golden}/batches.safetensors, {fields}, shuffle: false}}
optimizer: {{type: adamw, learning_rate: {learning_rate}, weight_decay: {weight_decay}}}
training: {{global_batch_size: {batch}, max_steps: {steps}, max_grad_norm: {clip}}}
logging: {{logging_steps: 1}}
"""


class Language(support.DltrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())

    def run_model(self, name, folder, *arguments, model=None):
        fields = "inputs: input, targets: target"
        if name == "bert":
            fields = "inputs: {input: masked_input, attention_mask: attention_mask}, targets: masked_target"
        golden = {key: self.golden[key] for key in ("batch", "steps", "learning_rate", "weight_decay", "clip")}
        default = MODELS[name] + f"init_from: {GOLDEN}/{name}.safetensors, vocab_size: 61}}"
        configuration = self.write(f"{name}.yaml", CONFIGURATION.format(model=model or default, golden=GOLDEN,
                                                                       fields=fields, **golden))
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
        self.assertEqual(sorted(self.golden["cases"]), sorted(MODELS))
        for name in MODELS:
            self.check(name, self.run_model(name, name))

    def test_folders_of_hugging_face_train_on_as_in_torch(self):
        for name in ("gpt2", "llama", "qwen2", "qwen3", "bert"):
            folder = self.folder / f"{name}-folder"
            folder.mkdir()
            shutil.copy(SOURCES / GOLDEN / f"{name}.json", folder / "config.json")
            shutil.copy(SOURCES / GOLDEN / f"{name}.safetensors", folder / "model.safetensors")
            keys = ", dropout: 0, attention_dropout: 0, attention_mask: true" if name == "bert" else ""
            self.check(name, self.run_model(name, f"{name}-from", model=f"{{from: {folder}{keys}}}"))

    def test_language_models_do_not_depend_on_the_micro_batch_or_on_ranks(self):
        for name in ("gpt2", "bert"):
            self.check(name, self.run_model(name, f"{name}-micro", "-s", "training.micro_batch_size=1"))
            self.check(name, self.run_model(name, f"{name}-ranks", "--nproc-per-node", "2"))

    def test_language_models_in_bf16_stay_near(self):
        for name in MODELS:
            self.check(name, self.run_model(name, f"{name}-bf16", "-s", "precision.compute=bf16"), 0.1)

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
