"""FP8 (precision.fp8) in whole runs: resuming, and the losses of a language model beside those of bf16."""
import statistics

import support
from support import SMALL, SOURCES, USAGE, metrics, steps

RECIPES = ("current", "delayed", "blockwise", "mxfp8")


def precision(recipe):
    return f"precision={{compute: bf16, fp8: {{recipe: {recipe}}}}}"


class Fp8(support.DltrainTest):
    def test_a_resumed_run_is_bit_identical_and_the_scales_of_delayed_are_kept(self):
        configuration = self.write("small.yaml", SMALL.replace("type: cosine", "type: constant"))  # whatever the last step
        options = ("-q", "-s", "model.layers=[{linear: 32}, gelu, {linear: 4}]", "-s", "data.train.shape=[16]", "-s", "data.eval.shape=[16]")
        whole, run = self.folder / "whole", self.folder / "run"
        for recipe in RECIPES:
            keys = (*options, "-s", precision(recipe))
            self.run_dltrain(configuration, "--output-dir", whole, "--overwrite", *keys)
            self.run_dltrain(configuration, "--output-dir", run, "--overwrite", "--max-steps", 7, *keys)
            self.run_dltrain(configuration, "--output-dir", run, "--resume", "auto", *keys)
            self.assert_same_state(run, whole)
            self.assertIn("fp8_underflow", steps(run)[-1])
        self.run_dltrain(configuration, "--output-dir", run, "--overwrite", "--max-steps", 7, *options, "-s", "precision.compute=bf16")
        refused = self.run_dltrain(configuration, "--output-dir", run, "--resume", "auto", *options, "-s", precision("delayed"), code=USAGE)
        self.assertIn("was saved with another precision.fp8", refused.err)
        self.run_dltrain(configuration, "--output-dir", run, "--resume", "auto", *options, "-s", precision("current"))

    def test_long_losses_are_within_one_percent_of_bf16(self):
        """The mean evaluation loss over three seeds of a small GPT on texts of this repository that do not change."""
        text = self.folder / "records.txt"
        text.write_text("".join(path.read_text() for path in sorted(SOURCES.glob("docs/records/2026-11-2[1-8]*.md"))))
        configuration = self.write("char.yaml", f"""
model: {{type: gpt2, num_layers: 2, hidden_size: 64, num_heads: 4, max_positions: 64, dropout: 0}}
data: {{type: text, path: {text}, tokenizer: char, sequence_length: 64, eval_fraction: 0.05}}
optimizer: {{type: adamw, learning_rate: 3.0e-3, weight_decay: 0.1}}
lr_scheduler: {{type: cosine, warmup_steps: 20, min_ratio: 0.1}}
training: {{global_batch_size: 16, max_steps: 400, max_grad_norm: 1.0}}
""")

        def loss(override):
            losses = []
            for seed in (1, 2, 3):
                run = self.folder / "language"
                self.run_dltrain(configuration, "-q", "--overwrite", "--output-dir", run, "--seed", seed, "-s", override)
                losses.append([line["eval_loss"] for line in metrics(run) if "eval_loss" in line][-1])
            return statistics.mean(losses)
        plain = loss("precision.compute=bf16")
        for recipe in RECIPES:
            found = loss(precision(recipe))
            print(f"{recipe}: {found:.4f}, bf16 {plain:.4f}")
            self.assertLess(abs(found / plain - 1), 0.01, recipe)


if __name__ == "__main__":
    support.main()
