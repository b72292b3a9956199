"""dltrain average: the mean of the weights of several checkpoints."""
import struct
import unittest

import support
from support import SMALL, STORAGE, USAGE, metrics, safetensors

NORM = SMALL.replace("    - {type: gelu}\n", "    - {type: reshape, shape: [2, 2, 6]}\n    - {type: batch_norm}\n    - {type: flatten}\n")
TEXT = """
name: letters
model:
  layers: [{embedding: {embedding_dim: 8}}, {linear: 8}, {lm_head: {}}]
data: {type: text, path: PATH, tokenizer: char, sequence_length: 8, eval_fraction: 0.2}
optimizer: {type: adamw, learning_rate: 1.0e-2}
training: {global_batch_size: 4, max_steps: 6}
checkpoint: {save_steps: 2}
"""


def numbers(path):
    """{name: (shape, values)} of the f32 tensors of a file."""
    return {name: (shape, struct.unpack(f"<{len(data) // 4}f", data)) for name, (_, shape, data) in safetensors(path).items()}


def model_of(checkpoint):
    return numbers(checkpoint / "model.safetensors")


class Average(support.DltrainTest):
    def check_mean(self, folder, checkpoints, weights):
        out, inputs = model_of(folder / "checkpoints" / "latest"), [model_of(c) for c in checkpoints]
        self.assertEqual(set(out), set(inputs[0]))
        for name, (shape, values) in out.items():
            self.assertEqual(shape, inputs[0][name][0])
            for i, value in enumerate(values):
                mean = sum(w * one[name][1][i] for w, one in zip(weights, inputs)) / sum(weights)
                self.assertAlmostEqual(value, mean, delta=1e-6 * max(1, abs(mean)))

    def test_checkpoints_of_one_run_and_weights(self):
        run, soup, tilted = self.folder / "run", self.folder / "soup", self.folder / "tilted"
        self.run_dltrain(self.small(), "-q", "--output-dir", run)
        steps = [run / "checkpoints" / f"step-{step:06}" for step in (20, 30, 40)]
        said = self.run_dltrain("average", *steps, "-o", soup)
        self.assertIn("0.3333 of", said.out)
        self.assertNotIn("warning", said.err)
        self.check_mean(soup, steps, (1, 1, 1))
        self.run_dltrain("average", *steps, "-o", tilted, "--weights", "1,2,5")
        self.check_mean(tilted, steps, (1, 2, 5))
        # One checkpoint with all of the weight is that checkpoint.
        same = self.folder / "same"
        self.run_dltrain("average", *steps, "-o", same, "--weights", "0,0,3")
        self.assertEqual(model_of(same / "checkpoints" / "latest"), model_of(steps[2]))
        # The folder is used like a run.
        self.assertIn("loss", self.run_dltrain("eval", "--checkpoint", soup).out)
        self.run_dltrain("predict", "--checkpoint", soup, "-o", self.folder / "out.csv")
        more = self.folder / "more"
        self.run_dltrain(self.small(), "-q", "--output-dir", more, "--max-steps", 1, "-s", f"model.init_from={soup}")
        self.assertGreater(len(metrics(more)), 0)
        # It has no moments to go on from.
        self.refused(USAGE, self.small(), "--output-dir", self.folder / "on", "--resume", soup, says="made by `dltrain average` and has weights only")
        said = self.refused(USAGE, "average", *steps, "-o", soup, says="already contains a run; use --overwrite to discard it, or name another folder with --output")
        self.assertNotIn("--resume", said.err)
        link = self.folder / "link"
        link.symlink_to(soup)
        self.run_dltrain("average", *steps[:2], "-o", link, "--overwrite")
        self.check_mean(soup, steps[:2], (1, 1))
        # `checkpoints/*` names the folders that latest and best lead to again.
        said = self.run_dltrain("average", *sorted((run / "checkpoints").iterdir()), "-o", self.folder / "all")
        self.assertIn("latest is", said.err)
        self.check_mean(self.folder / "all", steps, (1, 1, 1))

    def test_statistics_and_averages(self):
        runs = [self.folder / name for name in ("a", "b")]
        for seed, run in enumerate(runs):
            self.run_dltrain(self.small(NORM), "-q", "--output-dir", run, "-s", f"seed={seed}", "-s", "training.ema={decay: 0.9}")
        soup = self.folder / "soup"
        result = self.run_dltrain("average", *runs, "-o", soup)
        said = result.out
        self.assertRegex(result.err, "a/checkpoints/step-000040 and .*b/checkpoints/step-000040 began with different weights .seed 0 and seed 1.")
        tuned = self.folder / "tuned"
        self.run_dltrain(self.small(NORM), "-q", "--output-dir", tuned, "-s", f"model.init_from={runs[1]}", "--max-steps", 1)
        self.assertNotIn("began with", self.run_dltrain("average", runs[1], tuned, "-o", self.folder / "line").err)
        self.run_dltrain("eval", "--checkpoint", soup)  # the configuration has training.ema, the average has no averages
        self.assertIn("running statistics of batch norm were averaged too", said)
        self.assertIn("of the averages that training.ema kept", said)
        out = model_of(soup / "checkpoints" / "latest")
        kept = [numbers(run / "checkpoints" / "latest" / "ema.safetensors") for run in runs]
        name = next(name for name in kept[0] if name.endswith("weight"))
        self.assertAlmostEqual(out[name][1][0], (kept[0][name][1][0] + kept[1][name][1][0]) / 2, delta=1e-6)
        # Training at a rate of 0 changes the statistics and no weight.
        again = self.folder / "again"
        self.run_dltrain(self.small(NORM), "-q", "--output-dir", again, "-s", f"model.init_from={soup}", "-s", "optimizer.learning_rate=0")
        after = model_of(again / "checkpoints" / "latest")
        changed = {name for name in out if after[name] != out[name]}
        self.assertEqual({name.rsplit(".", 1)[1] for name in changed}, {"running_mean", "running_var"})

    def test_language_models(self):
        path = self.write("letters.yaml", TEXT.replace("PATH", str(self.write("letters.txt", "abcd efgh ijkl mnop " * 40))))
        run, soup = self.folder / "run", self.folder / "soup"
        self.run_dltrain(path, "-q", "--output-dir", run)
        self.run_dltrain("average", *sorted((run / "checkpoints").glob("step-*")), "-o", soup)
        self.assertTrue(self.run_dltrain("generate", soup, "--prompt", "ab", "--max-tokens", 4).out.startswith("ab"))

    def test_what_does_not_fit_is_refused(self):
        runs = {}
        for name, text in (("small", SMALL), ("wide", SMALL.replace("out_features: 24", "out_features: 25")),
                           ("dropout", SMALL.replace("rate: 0.2", "rate: 0.5")), ("relu", SMALL.replace("gelu", "relu"))):
            runs[name] = self.folder / name
            self.run_dltrain(self.small(text), "-q", "--output-dir", runs[name], "--max-steps", 2)
        out = ("-o", self.folder / "out")
        self.refused(USAGE, "average", runs["small"], runs["wide"], *out, says="out_features: 24 -> 25")
        self.refused(USAGE, "average", runs["small"], runs["relu"], *out, says="gelu -> relu")
        self.run_dltrain("average", runs["small"], runs["dropout"], "-o", self.folder / "soup")
        for name in ("lora", "alpha"):
            runs[name] = self.folder / name
            self.run_dltrain(self.small(), "-q", "--output-dir", runs[name], "--max-steps", 2,
                             "-s", f"model.lora={{rank: 2, alpha: {len(name)}, save: all}}")
        self.refused(USAGE, "average", runs["lora"], runs["alpha"], *out, says="model.lora.alpha: 4")
        said = self.run_dltrain("average", runs["lora"], runs["lora"], "--weights", "1,1", "-o", self.folder / "adapters").out
        self.assertIn("adapters were averaged factor by factor", said)
        self.refused(USAGE, "average", runs["small"], *out, says="at least two checkpoints")
        self.refused(USAGE, "average", runs["small"], runs["small"], *out, says="at least two checkpoints")
        self.refused(USAGE, "average", runs["small"], runs["small"], *out, "--weights", "1,2,3", says="3 weights for 2 checkpoints")
        self.refused(USAGE, "average", runs["small"], runs["small"], *out, "--weights", "1,-1", says="must not be negative")
        self.refused(USAGE, "average", runs["small"], runs["small"], *out, "--weights", "0,0", says="all 0")
        self.refused(STORAGE, "average", runs["small"], self.folder / "none", *out, says="does not exist")
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    support.main()
