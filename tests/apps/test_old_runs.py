"""Runs that earlier revisions began and that were stopped go on with today's program, to the recorded bits.

tests/old_runs/<revision> has what scripts/record_old_runs.py made with the program of that revision. Bits depend on
the instruction set and on the version of oneDNN (docs/equality.md), so they are recorded for AVX-512 and for AVX2 with
the oneDNN of Debian 12; other processors and versions are held to 1e-5. oneDNN is kept to AVX2 and to one thread, so
that it chooses alike. A promise that ends is told in CHANGELOG.md
and taken out of expected.json.
"""
import hashlib
import json
import os
import pathlib
import shutil

import support
from support import SOURCES, metrics, safetensors

OLD = SOURCES / "tests" / "old_runs"
EXACT = ("loss", "accuracy", "learning_rate", "grad_norm", "eval_loss", "eval_accuracy")


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1", ONEDNN_MAX_CPU_ISA="AVX2", OMP_WAIT_POLICY="passive")


def arguments(name):
    return ("--nproc-per-node", "3") if name == "zero" else ()


def instruction_set():
    flags = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(flags):
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= set(flags) else None


def digest(checkpoint, stem):
    """Of all tensors by name, in whatever files they are."""
    tensors = {}
    for path in checkpoint.glob(f"{stem}*.safetensors"):
        tensors.update(safetensors(path))
    hasher = hashlib.sha256()
    for name in sorted(tensors):
        hasher.update(repr((name, *tensors[name][:2])).encode() + tensors[name][2])
    return hasher.hexdigest()


def continuation(run, stopped):
    """What the steps after `stopped` computed, and what they left."""
    lines = [{key: line[key] for key in ("step", *EXACT) if key in line} for line in metrics(run) if line["step"] > stopped]
    latest = run / "checkpoints" / "latest"
    return {"lines": lines, **{stem: digest(latest, stem) for stem in ("model", "optimizer", "ema")}}


class OldRuns(support.DltrainTest):
    def go_on(self, folder, name, *command):
        """Resumes the copy `folder`/`name`, and compares with what its own program did."""
        run = folder / name
        stopped = json.loads((run / "summary.json").read_text())["steps"]
        self.run_dltrain("train", *command, *arguments(name), cwd=folder, env=environment())
        found = continuation(run, stopped)
        recorded = json.loads((folder / "expected.json").read_text())
        if instruction_set() in recorded and "oneDNN 2.6." in self.run_dltrain("version").out:
            self.assertEqual(found, recorded[instruction_set()][name], f"{folder.name}/{name}")
        for line, other in zip(found["lines"], recorded["avx2"][name]["lines"], strict=True):
            self.assertEqual(line.keys(), other.keys())
            for key in line:
                self.assertAlmostEqual(line[key], other[key], delta=1e-5 * max(1, abs(other[key])), msg=f"{name}, {key}")

    def copies(self):
        for old in sorted(OLD.iterdir()):
            folder = self.folder / old.name
            shutil.copytree(old, folder, symlinks=True)
            yield folder

    def test_they_go_on_to_the_recorded_bits(self):
        for folder in self.copies():
            names = [path.stem for path in folder.glob("*.yaml")]
            self.assertEqual(sorted(names), ["convnet", "gpt", "mlp", "zero"])
            for name in names:
                self.go_on(folder, name, f"{name}.yaml", "-q", "--output-dir", name, "--resume", "auto")

    def test_they_go_on_with_the_configuration_that_they_kept(self):
        for folder in self.copies():
            moved = {"mlp": "samples.csv", "gpt": "text.txt"}  # since then, with the whole folder
            for name in ("convnet", "gpt", "mlp", "zero"):
                data = ("-s", f"data.train.path={folder / moved[name]}") if name in moved else ()
                self.go_on(folder, name, "-q", "--resume", name, *data)

    def test_they_can_be_used(self):
        for folder in self.copies():
            for name in ("convnet", "mlp", "zero"):
                path = () if name != "mlp" else ("-s", f"data.train.path={folder / 'samples.csv'}")
                self.run_dltrain("eval", "--checkpoint", name, *path, cwd=folder)
                self.run_dltrain("predict", "--checkpoint", name, *path, "-o", f"{name}.csv", cwd=folder)
            self.assertTrue(self.run_dltrain("generate", "gpt", "--prompt", "The sea", "--max-tokens", 8, cwd=folder).out.startswith("The sea"))
            self.run_dltrain("export", "gpt", "exported", cwd=folder)


if __name__ == "__main__":
    support.main()
