"""Trajectories against PyTorch's, recorded by scripts/record_golden_mlp.py: every loss, gradient norm and
learning rate of 20 steps from the same weights and batches, and the loss in evaluation mode afterwards."""
import json

import support
from support import SOURCES, steps

SMOOTH = 1e-5  # relative, for networks whose f32 and f64 runs agree to 1e-7
FIRST = 2e-6  # of the first loss: only rounding, before anything is chaotic
CHAOS = 10  # later losses of ReLU and batch norm: times the distance between torch's f32 and f64 runs
NINE_DIGITS = 1e-8  # metrics.jsonl rounds


def distance(a, b):
    return abs(a - b) / abs(b)


class Golden(support.DltrainTest):
    # Sums of gradients are cut by threads: bit-identical means at the same number of them, and the launcher
    # gives each rank its share of the cores.
    one_thread = {"OMP_NUM_THREADS": "1"}

    def tolerance(self, network, name, series, step):
        """Relative, to the f64 run: how far this number may be."""
        if network == "mlp":
            return SMOOTH
        f32, f64 = series["f32"][name], series["f64"][name]
        if step == 0 and name == "loss":
            return FIRST
        # The largest distance so far: a trajectory does not come back together.
        return max(SMOOTH, CHAOS * max(distance(a, b) for a, b in zip(f32[: step + 1], f64[: step + 1])))

    def agree(self, network, case, *arguments, environment=None):
        """Runs one case and compares it; returns the largest relative distance of a loss."""
        folder = SOURCES / "tests" / "golden" / network
        golden = json.loads((folder / "losses.json").read_text())
        series = golden["cases"][case]
        run = self.folder / f"{network}-{case}"
        batches = folder / "batches.safetensors"
        self.run_dltrain(folder / f"{case}.yaml", "--output-dir", run, "--quiet", "--overwrite",
                         "-s", f"data.eval={{type: tensors, path: {batches}, inputs: x, targets: y}}",
                         "-s", f"evaluation.samples={golden['batch']}", *arguments, env=environment or {})
        found = steps(run)
        self.assertEqual([line["step"] for line in found], list(range(1, golden["steps"] + 1)))
        worst = 0
        for i, line in enumerate(found):
            for name in ("loss", "grad_norm"):
                away = distance(line[name], series["f64"][name][i])
                self.assertLessEqual(away, self.tolerance(network, name, series, i), f"{network} {case} {name}, step {i + 1}")
                worst = max(worst, away if name == "loss" else 0)
            self.assertLessEqual(distance(line["learning_rate"], series["f64"]["learning_rate"][i]), NINE_DIGITS)
        evaluation = [line["eval_loss"] for line in support.metrics(run) if "eval_loss" in line]
        self.assertEqual(len(evaluation), 1)
        bound = SMOOTH if network == "mlp" else max(
            self.tolerance(network, "loss", series, golden["steps"] - 1),
            CHAOS * distance(series["f32"]["eval_loss"], series["f64"]["eval_loss"]))
        self.assertLessEqual(distance(evaluation[0], series["f64"]["eval_loss"]), bound)
        print(f"{network} {case} {' '.join(map(str, arguments))}: losses within {worst:.1e}")
        return run

    def cases(self, network):
        folder = SOURCES / "tests" / "golden" / network
        names = sorted(path.stem for path in folder.glob("*.yaml"))
        self.assertEqual(names, sorted(json.loads((folder / "losses.json").read_text())["cases"]))
        self.assertTrue(names)
        return names

    def test_every_mlp_trajectory_is_that_of_torch(self):
        for case in self.cases("mlp"):
            self.agree("mlp", case)

    def test_every_convnet_trajectory_is_that_of_torch(self):
        for case in self.cases("convnet"):
            self.agree("convnet", case)

    def test_mlp_trajectories_do_not_depend_on_the_micro_batch(self):
        for case in self.cases("mlp"):
            for size in (8, 2, 1):
                self.agree("mlp", case, "-s", f"training.micro_batch_size={size}")

    def test_mlp_trajectories_on_two_ranks_are_bit_identical_to_two_micro_steps(self):
        for case in self.cases("mlp"):
            ranks = self.agree("mlp", case, "--nproc-per-node", 2, environment=self.one_thread).rename(self.folder / f"{case}-ranks")
            micro = self.agree("mlp", case, "-s", "training.micro_batch_size=8", environment=self.one_thread)
            self.assert_same_state(ranks, micro)
            self.assertEqual([line["loss"] for line in steps(ranks)], [line["loss"] for line in steps(micro)])

    def test_batch_norm_on_two_ranks_is_bit_identical_to_two_micro_steps(self):
        """Statistics are those of a micro-batch, so halves of the batch are another trajectory than torch's."""
        for case in self.cases("convnet"):
            configuration = SOURCES / "tests" / "golden" / "convnet" / f"{case}.yaml"
            self.run_dltrain(configuration, "-q", "--output-dir", self.folder / f"{case}-1", "-s", "training.micro_batch_size=4",
                             env=self.one_thread)
            self.run_dltrain(configuration, "-q", "--output-dir", self.folder / f"{case}-2", "--nproc-per-node", 2,
                             env=self.one_thread)
            self.assert_same_state(self.folder / f"{case}-1", self.folder / f"{case}-2")

    def test_bf16_and_fp16_on_two_ranks_are_bit_identical_to_two_micro_steps(self):
        for network, size, precision in (("mlp", 8, "bf16"), ("convnet", 4, "bf16"), ("mlp", 8, "fp16"), ("convnet", 4, "fp16")):
            configuration = SOURCES / "tests" / "golden" / network / f"{self.cases(network)[0]}.yaml"
            common = (configuration, "-q", "-s", f"precision.compute={precision}")
            name = f"{network}-{precision}"
            self.run_dltrain(*common, "--output-dir", self.folder / f"{name}-1", "-s", f"training.micro_batch_size={size}",
                             env=self.one_thread)
            self.run_dltrain(*common, "--output-dir", self.folder / f"{name}-2", "--nproc-per-node", 2,
                             env=self.one_thread)
            self.assert_same_state(self.folder / f"{name}-1", self.folder / f"{name}-2")


if __name__ == "__main__":
    support.main()
