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
        self.check("pre", "tensor", "--nproc-per-node", "2", "-s", "parallelism.tensor=2")
        self.check("pre", "zero", "--nproc-per-node", "2", "-s", "parallelism.zero_stage=3", "-s", "parallelism.bucket_mb=0.02")

    def recipe(self, count):
        data = self.folder / "number-words"
        subprocess.run([sys.executable, SOURCES / "scripts" / "number_words.py", "--output", data, "--count", str(count)],
                       check=True)
        return ["configs/recipes/number-words.yaml", "-s", f"data.train.path={data}/train.jsonl", "-s",
                f"data.eval.path={data}/eval.jsonl"]

    def test_the_recipe_trains_on_pairs_of_texts(self):
        recipe = self.recipe(300)
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

    def test_texts_are_written_to_sources(self):
        run = self.folder / "run"
        few = ["--output-dir", run, "-q", "--max-steps", "40", "-s", "model.hidden_size=32", "-s",
               "generation={sample_steps: 20, prompts: ['12', '40321'], max_tokens: 9, temperature: 0.7}"]
        self.run_dltrain(*self.recipe(300), *few)
        samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in samples], [20, 20, 40, 40])
        self.assertEqual([line["prompt"] for line in samples], ["12", "40321"] * 2)
        self.assertTrue(samples[-1]["text"])
        more = ("--max-tokens", 30, "--temperature", 0.9, "--top-k", 12, "--top-p", 0.95, "--num-samples", 2, "--seed", 4,
                "--json", "-q")
        prompts = [part for n in ("7", "40321", "999999", "15") for part in ("--prompt", n)]
        together = self.run_dltrain("generate", run, *prompts, *more).out
        lines = [json.loads(line) for line in together.splitlines()]
        self.assertEqual([line["prompt_text"] for line in lines], [n for n in ("7", "40321", "999999", "15") for _ in range(2)])
        self.assertEqual(len({line["text"] for line in lines}), 8)
        for size in (1, 3):
            self.assertEqual(self.run_dltrain("generate", run, *prompts, *more, "--batch-size", size).out, together)
        alone = self.run_dltrain("generate", run, "--prompt", "40321", *more).out.splitlines()
        self.assertEqual([json.loads(line)["text"] for line in alone], [line["text"] for line in lines[2:4]])
        # The output does not continue the source and does not contain it.
        said = self.run_dltrain("generate", run, "--prompt", "12", "--temperature", 0, "--max-tokens", 6, "-q").out
        self.assertRegex(said, r"^[a-z -]{1,6}\n$")
        self.run_dltrain("generate", run, "--prompt", "12", "--precision", "bf16", "-q")
        self.refused(USAGE, "generate", run, "--prompt", "1234567", says="prompt 1 has 8 tokens, the model has positions for 7")
        self.refused(USAGE, "generate", run, says="needs a source text")
        self.refused(USAGE, "generate", run, "--prompt", "1", "--begin-of-text", says="always begins with it")
        self.refused(USAGE, "export", run, self.folder / "out", says="match no family that can be exported")

    def test_long_the_recipe_learns_to_write_numbers(self):
        run = self.folder / "run"
        self.run_dltrain(*self.recipe(20000), "-q", "--output-dir", run)
        pairs = [json.loads(line) for line in (self.folder / "number-words" / "eval.jsonl").read_text().splitlines()][:200]
        prompts = self.write("numbers.jsonl", "".join(json.dumps({"prompt": pair["digits"]}) + "\n" for pair in pairs))
        out = self.run_dltrain("generate", run, "--prompt-file", prompts, "--temperature", 0, "--json", "-q").out
        texts = [json.loads(line) for line in out.splitlines()]
        self.assertEqual({text["finish"] for text in texts}, {"end_token"})
        right = sum(text["text"] == pair["words"] for text, pair in zip(texts, pairs, strict=True))
        print(f"{right} of {len(pairs)} names are right")
        self.assertGreaterEqual(right, 180)


if __name__ == "__main__":
    support.main()
