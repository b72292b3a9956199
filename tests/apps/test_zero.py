"""Ranks that share state (parallelism.zero_stage) and reductions in a fixed order, as processes over Gloo. What they
compute is swept over layouts in tests/train/layouts.cpp and zero.cpp, with threads as ranks."""
import json
import re

import support
from support import OK, SMALL, SOURCES, USAGE, checkpoints, steps

GOLDEN = "tests/golden/language"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
SMALL_UNITS = ("-s", "parallelism.bucket_mb=0.004")  # so that there are several


class Zero(support.DltrainTest):
    def train(self, configuration, folder, *arguments, ranks=1, code=OK):
        run = self.folder / folder
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--nproc-per-node", ranks, *arguments, env=ONE_THREAD, code=code)
        return run

    def test_a_fixed_reduction_has_the_same_bits_on_1_2_and_4_ranks(self):
        configuration = SOURCES / GOLDEN / "gpt2.yaml"
        fixed = ("-s", "training.reduction=fixed", "-s", "training.micro_batch_size=1")
        alone = self.train(configuration, "alone", *fixed)
        for ranks in (2, 4):
            shared = self.train(configuration, f"ranks{ranks}", *fixed, ranks=ranks)
            self.assert_same_state(alone, shared)
            self.assertEqual([(line["loss"], line["grad_norm"]) for line in steps(alone)],
                             [(line["loss"], line["grad_norm"]) for line in steps(shared)])

    def test_every_stage_has_the_trajectory_of_torch(self):
        golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())["cases"]["gpt2"]["f64"]
        for ranks, stage in ((2, 1), (4, 2), (2, 3)):
            run = self.train(SOURCES / GOLDEN / "gpt2.yaml", f"{ranks}-{stage}", "-s", f"parallelism.zero_stage={stage}",
                             *SMALL_UNITS, ranks=ranks)
            for i, line in enumerate(steps(run)):
                for series in ("loss", "grad_norm"):
                    self.assertLessEqual(abs(line[series] - golden[series][i]), 1e-5 * golden[series][i],
                                         f"stage {stage} on {ranks} ranks: {series} of step {i + 1}")

    def test_saved_on_4_ranks_in_stage_3_it_goes_on_in_any_layout(self):
        configuration = self.small(SMALL.replace("global_batch_size: 16", "global_batch_size: 24"))
        whole = self.train(configuration, "whole", "-s", "parallelism.zero_stage=3", *SMALL_UNITS,
                           "-s", "checkpoint.save_total_limit=0", ranks=4)
        self.assertEqual(checkpoints(whole), [f"step-{step:06}" for step in (10, 20, 30, 40)])
        saved = whole / "checkpoints" / "step-000020"
        parts = sorted(path.name for path in saved.glob("model-*.safetensors"))
        self.assertEqual(parts, [f"model-{i:05}-of-00004.safetensors" for i in range(1, 5)])
        index = json.loads((saved / "model.safetensors.index.json").read_text())["weight_map"]
        self.assertEqual(sorted(index), ["layers.0.bias", "layers.0.weight", "layers.3.bias", "layers.3.weight"])
        expected = steps(whole)[20:]
        for ranks, stage in ((1, 0), (2, 1), (3, 2), (4, 3), (2, 0)):
            run = self.train(configuration, f"on-{ranks}-{stage}", "-s", f"parallelism.zero_stage={stage}", *SMALL_UNITS,
                             "--resume", saved, ranks=ranks)
            found = steps(run)
            self.assertEqual([line["step"] for line in found], list(range(21, 41)))
            for line, other in zip(found, expected):
                self.assertLessEqual(abs(line["loss"] - other["loss"]), 1e-5 * other["loss"], f"{ranks} ranks, stage {stage}")
        # The same layout goes on with the same bits.
        self.assertEqual([line["loss"] for line in steps(self.folder / "on-4-3")], [line["loss"] for line in expected])
        # A checkpoint in parts serves those who only use the model.
        self.run_dltrain("eval", "--checkpoint", whole)

    def test_what_ranks_cannot_share_is_refused_with_its_place(self):
        text = SMALL + "parallelism: {zero_stage: 2}\n"
        for line, says in (("optimizer: {type: lamb, learning_rate: 1.0e-2}", "lamb looks at whole tensors"),
                           ("training: {global_batch_size: 16, max_steps: 4, ema: {decay: 0.9}}", "averages of weights")):
            key = line.split(":")[0]
            path = self.write("refused.yaml", re.sub(rf"(?m)^{key}: .*$", line, text))
            number = path.read_text().splitlines().index(line) + 1
            self.refused(USAGE, path, "--output-dir", self.folder / "run", "--nproc-per-node", 2, says=(says, f"refused.yaml:{number}:"))
        path = self.write("fixed.yaml", SMALL.replace("max_steps: 40", "max_steps: 40, reduction: fixed, micro_batch_size: 1")
                          .replace("global_batch_size: 16", "global_batch_size: 12"))
        self.refused(USAGE, path, "--output-dir", self.folder / "run", "--nproc-per-node", 2, says="a power of two")

    def test_the_plan_of_1024_ranks_needs_none(self):
        text = self.run_dltrain("plan", "--world", 1024, "-s", "parallelism.zero_stage=3", "-s", "precision.compute=bf16",
                                "-s", "training={global_batch_size: 1024, max_steps: 1}", SOURCES / GOLDEN / "gpt2.yaml").out
        self.assertIn("1024 ranks × 1 micro-step of 1", text)
        self.assertRegex(text, r"each sends .* gathered\)")
        self.assertRegex(text, r"of which .* s show \(\d+ % hidden\)")


if __name__ == "__main__":
    support.main()
