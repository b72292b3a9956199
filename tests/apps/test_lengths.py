"""Steps of several lengths: buckets of pairs of texts, and a curriculum over the length of sequences."""
import json

import support
from support import USAGE, metrics, steps

PAIRS = """
name: pairs
model: {{type: transformer, num_layers: 1, hidden_size: 16, num_heads: 2, dropout: 0}}
data:
  type: jsonl
  source: source
  target: target
  tokenizer: {{type: char, special_tokens: [</s>]}}
  source_length: 32
  sequence_length: 48
  {options}
  train: {{path: {folder}/train.jsonl}}
  eval: {{path: {folder}/train.jsonl}}
optimizer: {{type: adamw, learning_rate: 3.0e-3}}
training: {{global_batch_size: 8, max_steps: 20, max_grad_norm: 1.0}}
logging: {{logging_steps: 1}}
"""

TEXT = """
name: text
model: {{type: gpt2, num_layers: 1, hidden_size: 16, num_heads: 2, max_positions: 40, dropout: 0.1}}
data:
  type: text
  path: {folder}/text.txt
  tokenizer: byte
  sequence_length: 40
  {options}
  eval_fraction: 0.1
optimizer: {{type: adamw, learning_rate: 3.0e-3}}
training: {{global_batch_size: 4, max_steps: 20}}
logging: {{logging_steps: 1}}
"""
CURRICULUM = "curriculum: {from: 8, steps: 15, stages: 4}"


class Lengths(support.DltrainTest):
    def setUp(self):
        super().setUp()
        # The shortest pairs first, so that buckets in file order have the batches of whole samples.
        pairs = [{"source": "abcdefgh"[i % 8] * (1 + i // 8), "target": "hgfedcba"[i % 8] * (1 + i // 5)} for i in range(160)]
        self.write("train.jsonl", "".join(json.dumps(pair) + "\n" for pair in pairs))
        self.write("text.txt", "".join(chr(97 + i * i % 23) for i in range(3000)))

    def configuration(self, text, options):
        return self.write("run.yaml", text.format(folder=self.folder, options=options))

    def run_case(self, text, options, name, *arguments):
        run = self.folder / name
        self.run_dltrain(self.configuration(text, options), "-q", "--output-dir", run, *arguments)
        return run

    def losses(self, run):
        return [line["loss"] for line in steps(run)]

    def test_batches_of_buckets_have_the_losses_of_whole_samples(self):
        whole = self.run_case(PAIRS, "shuffle: false", "whole")
        for count in (1, 4):
            bucketed = self.run_case(PAIRS, f"shuffle: false\n  length_buckets: {count}", f"buckets-{count}")
            for a, b in zip(steps(whole), steps(bucketed), strict=True):
                for series in ("loss", "grad_norm"):
                    self.assertLessEqual(abs(a[series] - b[series]), 2e-6 * a[series], f"{count} buckets, step {a['step']}")
            evaluations = [[line["eval_loss"] for line in metrics(run) if "eval_loss" in line] for run in (whole, bucketed)]
            self.assertTrue(evaluations[0])
            self.assertAlmostEqual(evaluations[0][-1], evaluations[1][-1], places=4)

    def test_steps_of_several_lengths_resume_bit_identically(self):
        for text, options in ((PAIRS, "length_buckets: 4"), (TEXT, CURRICULUM)):
            name = options.split(":")[0]
            whole = self.run_case(text, options, f"{name}-whole")
            parts = self.run_case(text, options, f"{name}-parts", "--max-steps", "9")
            self.run_dltrain(self.configuration(text, options), "-q", "--output-dir", parts, "--resume", "auto")
            self.assert_same_state(whole, parts)
            self.assertEqual(self.losses(whole), self.losses(parts))

    def test_ranks_and_micro_batches_of_a_step_have_one_length(self):
        for text, options in ((PAIRS, "length_buckets: 4"), (TEXT, CURRICULUM)):
            name = options.split(":")[0]
            whole = self.losses(self.run_case(text, options, f"{name}-whole"))
            micro = self.run_case(text, options, f"{name}-micro", "-s", "training.micro_batch_size=2")
            ranks = self.run_case(text, options, f"{name}-ranks", "--nproc-per-node", "2", "-s", "training.micro_batch_size=2")
            zero = self.run_case(text, options, f"{name}-zero", "--nproc-per-node", "2", "-s", "parallelism.zero_stage=3",
                                 "-s", "parallelism.bucket_mb=0.01")
            for other in (micro, ranks, zero):
                for a, b in zip(whole, self.losses(other), strict=True):
                    self.assertLessEqual(abs(a - b), 1e-5 * a)

    def test_the_plan_shows_every_length(self):
        out = self.run_dltrain("plan", self.configuration(TEXT, CURRICULUM)).out
        self.assertIn("steps of 4 lengths", out)
        for length in (8, 16, 24, 40):
            self.assertIn(f"input {length}, target {length}", out)
        out = self.run_dltrain("plan", self.configuration(PAIRS, "length_buckets: 3")).out
        self.assertIn("steps of 3 lengths", out)
        self.assertIn("of 20 steps", out)
        self.assertIn("source 24, decoder_input 40, target 40", out)
        for precision in ("f32", "bf16"):
            self.run_dltrain("check", self.configuration(TEXT, CURRICULUM), "-s", f"precision.compute={precision}", code=None)

    def test_what_cannot_work_is_refused(self):
        def refused(text, options, says, **change):
            path = self.configuration(text, options)
            for old, new in change.items():
                path.write_text(path.read_text().replace(old, new))
            self.refused(USAGE, path, "--output-dir", self.folder / "wrong", says=says)

        refused(TEXT, "curriculum: {from: 40, steps: 5}", "run.yaml:9:22: error: from must be below sequence_length (40)")
        refused(TEXT, CURRICULUM + "\n  sampling: streams", "streams are contiguous")
        refused(TEXT, CURRICULUM + "\n  mlm_probability: 0.1", "which masks whole samples")
        refused(TEXT, "length_buckets: 2", "unknown key 'length_buckets'")
        for loss in ("ignore_index: 3", "balanced_class_weights: true"):
            refused(TEXT + f"loss: {{{{type: cross_entropy, {loss}}}}}\n", CURRICULUM, "class weights and ignore_index cannot be used with a curriculum")
        refused(PAIRS, CURRICULUM, "a curriculum needs documents")
        refused(PAIRS, "length_buckets: 2\n  source_lengths: false", "length_buckets removes padding")
        refused(PAIRS, "length_buckets: 2\n  sampling: balanced", "cannot be combined")
        table = "model: {layers: [embedding: {embedding_dim: 8}, position_embedding, lm_head: {}]}"
        model = TEXT.split("\n")[2].replace("{{", "{").replace("}}", "}")
        refused(TEXT, CURRICULUM, "need parameters that do not depend on it", **{model: table})
        for stage in (0, 1, 2, 3):
            self.refused(USAGE, "plan", self.folder / "run.yaml", "--world", 2, "-s", f"parallelism.zero_stage={stage}",
                         says="need parameters that do not depend on it")


if __name__ == "__main__":
    support.main()
