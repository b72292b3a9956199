"""Encoder and decoder: Hugging Face's runs recorded by scripts/record_golden_encoder_decoder.py, and pairs of texts from
JSON Lines."""
import json
import subprocess
import sys

import support
from support import SOURCES, USAGE, steps

# Relative. PyTorch's own runs in f32 and f64 are at most 8e-7 apart; the rest is room for sums in another order.
TOLERANCE = 1e-5
GOLDEN = "tests/golden/encoder_decoder"

CONFIGURATION = """
name: golden-encoder-decoder
model: {{type: transformer, norm: {name}, num_layers: 2, hidden_size: 32, num_heads: 4, intermediate_size: 48, dropout: 0,
         activation: gelu, init_from: {golden}/{name}.safetensors, vocab_size: 37}}
data:
  type: tensors
  path: {golden}/batches.safetensors
  inputs: {{source: source, source_lengths: source_lengths, decoder_input: decoder_input}}
  targets: target
  shuffle: false
optimizer: {{type: adamw, learning_rate: {learning_rate}, weight_decay: {weight_decay}}}
training: {{global_batch_size: {batch}, max_steps: {steps}, max_grad_norm: {clip}}}
logging: {{logging_steps: 1}}
"""


class EncoderDecoder(support.DltrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())

    def check(self, name, folder, *arguments, tolerance=TOLERANCE):
        golden = {key: self.golden[key] for key in ("batch", "steps", "learning_rate", "weight_decay", "clip")}
        configuration = self.write(f"{name}.yaml", CONFIGURATION.format(name=name, golden=GOLDEN, **golden))
        run = self.folder / folder
        self.run_dltrain(configuration, "-q", "--output-dir", run, *arguments)
        lines = steps(run)
        self.assertEqual(len(lines), self.golden["steps"])
        for i, line in enumerate(lines):
            for series in ("loss", "grad_norm"):
                expected = self.golden["cases"][name]["f64"][series][i]
                self.assertLessEqual(abs(line[series] - expected), tolerance * expected, f"{name} {series}, step {i + 1}")

    def test_encoder_decoder_models_have_the_trajectory_of_torch(self):
        self.assertEqual(sorted(self.golden["cases"]), ["post", "pre"])
        for name in self.golden["cases"]:
            self.check(name, name)
            self.check(name, f"{name}-micro", "-s", "training.micro_batch_size=1")
            self.check(name, f"{name}-bf16", "-s", "precision.compute=bf16", tolerance=0.1)
        self.check("pre", "ranks", "--nproc-per-node", "2")
        self.check("pre", "zero", "--nproc-per-node", "2", "-s", "parallelism.zero_stage=3", "-s", "parallelism.bucket_mb=0.02")

    def test_the_recipe_trains_on_pairs_of_texts(self):
        data = self.folder / "number-words"
        subprocess.run([sys.executable, SOURCES / "scripts" / "number_words.py", "--output", data, "--count", "300"], check=True)
        recipe = ["configs/recipes/number-words.yaml", "-s", f"data.train.path={data}/train.jsonl", "-s",
                  f"data.eval.path={data}/eval.jsonl"]
        run = self.folder / "run"
        self.run_dltrain(*recipe, "-q", "--output-dir", run, "--max-steps", "60", "-s", "logging.logging_steps=1")
        losses = [line["loss"] for line in steps(run)]
        self.assertLess(losses[-1], 0.8 * losses[0])
        # A model that has no use for the lengths, and data without them.
        without = ("-s", "model.source_lengths=false")
        refused = self.refused(USAGE, *recipe, *without, "--dry-run", "--output-dir", self.folder / "dry")
        self.assertIn("no layer reads the data's 'source_lengths'", refused.err)
        self.run_dltrain(*recipe, *without, "-s", "data.source_lengths=false", "-s", "data.length_buckets=null",
                         "--dry-run", "--output-dir", self.folder / "dry")


if __name__ == "__main__":
    support.main()
