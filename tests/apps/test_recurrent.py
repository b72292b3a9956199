"""Recurrent language models: PyTorch's runs recorded by scripts/record_golden_recurrent.py, state that is carried from
batch to batch, and what that refuses."""
import json

import support
from support import DATA, SOURCES, USAGE, safetensors, steps

# Relative. PyTorch's own runs in f32 and f64 are at most 8e-7 apart; the rest is room for sums in another order.
TOLERANCE = 1e-5
GOLDEN = "tests/golden/recurrent"

CONFIGURATION = """
name: golden-recurrent
model: {{type: char_lstm, cell: {cell}, hidden_size: 24, carry_state: {carried}, init_from: {golden}/{cell}.safetensors, vocab_size: 29}}
data:
  type: tokens
  path: {golden}/tokens.bin
  sequence_length: {tokens}
  random_offset: false
  {order}
  train: {{}}
  eval: {{}}
optimizer: {{type: adamw, learning_rate: {learning_rate}, weight_decay: {weight_decay}}}
training: {{global_batch_size: {batch}, max_steps: {steps}, max_grad_norm: {clip}}}
logging: {{logging_steps: 1}}
"""


class Recurrent(support.DltrainTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())

    def configuration(self, name):
        carried = name.endswith("_carried")
        golden = {key: self.golden[key] for key in ("batch", "steps", "tokens", "learning_rate", "weight_decay", "clip")}
        return self.write(f"{name}.yaml", CONFIGURATION.format(
            cell=name.split("_")[0], carried=str(carried).lower(), golden=GOLDEN,
            order="sampling: streams" if carried else "shuffle: false", **golden))

    def run_case(self, name, folder, *arguments):
        run = self.folder / folder
        self.run_dltrain(self.configuration(name), "-q", "--output-dir", run, *arguments)
        return run

    def check(self, name, run, tolerance=TOLERANCE):
        lines, golden = steps(run), self.golden["cases"][name]["f64"]
        self.assertEqual(len(lines), self.golden["steps"])
        for i, line in enumerate(lines):
            for series in ("loss", "grad_norm"):
                expected = golden[series][i]
                self.assertLessEqual(abs(line[series] - expected), tolerance * expected, f"{name} {series}, step {i + 1}")
        evaluation = json.loads((run / "summary.json").read_text())["eval_loss"]
        self.assertLessEqual(abs(evaluation - golden["evaluation"]), tolerance * golden["evaluation"], f"{name} evaluation")

    def test_recurrent_models_have_the_trajectory_of_torch(self):
        self.assertEqual(sorted(self.golden["cases"]), ["gru_carried", "lstm", "lstm_carried", "rnn_carried"])
        for name in self.golden["cases"]:
            self.check(name, self.run_case(name, name))

    def test_every_row_has_its_state_whatever_the_micro_batch_and_the_ranks(self):
        self.check("lstm_carried", self.run_case("lstm_carried", "micro", "-s", "training.micro_batch_size=1"))
        self.check("gru_carried", self.run_case("gru_carried", "ranks", "--nproc-per-node", "2"))
        self.check("rnn_carried", self.run_case("rnn_carried", "both", "--nproc-per-node", "2", "-s",
                                                "training.micro_batch_size=1"))
        self.check("gru_carried", self.run_case("gru_carried", "zero", "--nproc-per-node", "2", "-s", "parallelism.zero_stage=3",
                                                "-s", "parallelism.bucket_mb=0.004"))

    def test_bf16_stays_near(self):
        for name in self.golden["cases"]:
            self.check(name, self.run_case(name, name, "-s", "precision.compute=bf16"), 0.1)

    def test_carried_state_resumes_bit_identically_and_is_part_of_checkpoints(self):
        for options in ((), ("-s", "precision.compute=bf16"), ("-s", "training.micro_batch_size=2")):
            kind = "-".join(option for option in options if "=" in option)
            whole = self.run_case("lstm_carried", f"whole{kind}", *options)
            # In the middle of an epoch (8 steps), and with an evaluation between two of its steps.
            parts = self.run_case("lstm_carried", f"parts{kind}", "--max-steps", "11", "-s", "evaluation.eval_steps=2", *options)
            self.run_dltrain(self.configuration("lstm_carried"), "-q", "--output-dir", parts, "--resume", "auto", *options)
            self.assert_same_state(whole, parts)
            self.assertEqual([line["loss"] for line in steps(whole)], [line["loss"] for line in steps(parts)])
        self.assertIn("rnn.hidden_l1", safetensors(whole / "checkpoints" / "latest" / "optimizer.safetensors"))

    def test_the_resolved_configuration_runs_again(self):
        run = self.run_case("gru_carried", "whole")
        again = self.folder / "again"
        self.run_dltrain(run / "config.yaml", "-q", "--output-dir", again)
        self.assert_same_state(run, again)

    def test_what_cannot_work_is_refused(self):
        def refusal(change, code=USAGE, name="lstm_carried"):
            text = self.configuration(name).read_text()
            for old, new in change.items():
                self.assertIn(old, text)
                text = text.replace(old, new)
            return self.refused(code, self.write("wrong.yaml", text), "--output-dir", self.folder / "wrong").err

        self.assertIn("data of type text, tokens or jsonl with `sampling: streams`", refusal({"sampling: streams": ""}))
        self.assertIn("streams are read in order", refusal({"sampling: streams": "sampling: streams\n  shuffle: true"}))
        self.assertIn("fewer than the 64 streams", refusal({"global_batch_size: 4": "global_batch_size: 64"}, DATA))
        self.assertIn("or neither", refusal({"eval: {}": "eval: {sampling: uniform}"}))
        two = "model: {layers: [embedding: 8, {type: lstm, hidden_size: 8, carry_state: true, bidirectional: true}, lm_head]}"
        model = self.configuration("lstm_carried").read_text().split("\n")[2]
        self.assertIn("no state can be carried to it", refusal({model: two}))
        images = self.write("images.yaml", """
model: {layers: [{linear: 2}]}
data: {type: synthetic, sampling: streams}
optimizer: adam
training: {global_batch_size: 2, max_steps: 1}
""")
        self.assertIn("images.yaml:3:35: error: streams need one text",
                      self.refused(USAGE, images, "--output-dir", self.folder / "wrong").err)


if __name__ == "__main__":
    support.main()
