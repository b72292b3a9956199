"""dltrain lr-find: the learning-rate range test."""
import random
import re

from support import DIVERGED, SMALL, USAGE, DltrainTest, main, metrics


class LrFind(DltrainTest):
    def setUp(self):
        super().setUp()
        self.config = self.write("small.yaml", SMALL)

    def test_the_rate_that_is_found_trains_and_one_far_from_it_does_not(self):
        before = sorted(self.folder.iterdir())
        said = self.run_dltrain("lr-find", self.config, "--steps", 200).out
        self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertRegex(said, r"^smoothed loss at rates from 1\.0e-06 to ")
        rate = float(re.search(r"^try: -s optimizer\.learning_rate=(\S+)$", said, re.MULTILINE)[1])
        losses = {}
        for factor in (1e-3, 1, 1e3):
            run = self.folder / str(factor)
            self.run_dltrain("train", self.config, "-q", "--output-dir", run, "-s", f"optimizer.learning_rate={factor * rate}")
            losses[factor] = [line["loss"] for line in metrics(run) if "loss" in line][-1]
        self.assertLess(losses[1], min(losses[1e-3], losses[1e3]))

    def test_noise_before_the_loss_falls_is_of_no_account(self):
        rows = ["a,b,c,y"]
        chance = random.Random(2)
        for _ in range(800):
            a, b, c, noise = (chance.gauss(0, 1) for _ in range(4))
            rows.append(f"{a:.3f},{b:.3f},{c:.3f},{'ab'[0.7 * a + noise > 0]}")
        self.write("noisy.csv", "\n".join(rows) + "\n")
        config = self.write("noisy.yaml", """
data: {type: csv, path: noisy.csv, target: y, normalize: auto, eval_fraction: 0.2}
model: {layers: [linear: 128, relu, linear: auto]}
loss: cross_entropy
optimizer: adamw
training: {global_batch_size: 32, max_steps: 1000}
""")
        for seed in range(4):
            said = self.run_dltrain("lr-find", config, "-s", f"seed={seed}").out
            rate = float(re.search(r"^try: -s optimizer\.learning_rate=(\S+)$", said, re.MULTILINE)[1])
            self.assertGreater(rate, 1e-4, said)

    def test_the_setting_is_that_before_scale_learning_rate(self):
        rates = []
        for more in ((), ("-s", "optimizer.scale_learning_rate={rule: linear, base_batch: 4}")):
            said = self.run_dltrain("lr-find", self.config, *more).out
            rates.append(float(re.search(r"^try: -s optimizer\.learning_rate=(\S+)", said, re.MULTILINE)[1]))
        self.assertAlmostEqual(rates[0] / rates[1], 4, delta=0.3)

    def test_rates_of_groups_grow_with_that_of_the_optimizer(self):
        found = []
        for groups in ("[]", '[{match: "*", learning_rate: 1.0e-2}]'):  # the rate of the optimizer, too
            found.append(self.run_dltrain("lr-find", self.config, "-s", f"optimizer.groups={groups}").out)
        self.assertEqual(*found)

    def test_layouts_of_several_ranks_are_of_no_account(self):
        for keys in ("parallelism={layout: auto}", "parallelism={tensor: 2, sequence_parallel: true, product_pieces: 2}",
                     "training={global_batch_size: 16, micro_batch_size: 4, gradient_accumulation_steps: 2, max_steps: 40}"):
            for command in ("lr-find", "check"):
                self.run_dltrain(command, self.config, "-s", keys)

    def test_ranges_that_cannot_work_are_refused(self):
        self.refused(USAGE, "lr-find", self.config, "--min", "1", "--max", "0.1", says="--min 1 is not below --max 0.1")
        self.refused(DIVERGED, "lr-find", self.config, "--min", "1e4", "--max", "1e6", says="take a smaller --min")
        for low, high, advice in (("1e-10", "1e-9", "take a larger --max or more --steps"), ("0.3", "300", "take a smaller --min")):
            said = self.run_dltrain("lr-find", self.config, "--min", low, "--max", high).out
            self.assertIn(f"the loss falls at no rate by 5 %; {advice}, or see `dltrain check`\n", said)

    def test_flags_without_effect_are_refused(self):
        for command in (("lr-find",), ("eval",), ("predict", "-o", "x.csv"), ("profile",), ("data", "show"), ("data", "inspect"), ("data", "prepare", "-o", "x")):
            self.refused(USAGE, *command, self.config, "--max-steps", 5, says="--max-steps")
        self.refused(USAGE, "data", "inspect", self.config, "--device", "cpu", says="--device")


if __name__ == "__main__":
    main()
