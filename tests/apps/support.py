"""What the tests of the executable share: a scratch folder a test, runs of dltrain, its files read back.

The executable is $DLTRAIN (default: build/dltrain). All runs start in the root of the sources, where the
configurations' relative paths hold; everything they write goes to the scratch folder.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

SOURCES = pathlib.Path(os.environ.get("SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
PROGRAM = os.environ.get("DLTRAIN", str(SOURCES / "build" / "dltrain"))


def is_sanitized():
    """Whether the program was built with sanitizers."""
    return b"__ubsan_handle" in pathlib.Path(PROGRAM).read_bytes()


# Seconds for one run, a hang is a failure: less than ctest allows the test, so that it says which run.
TIMEOUT, LONG_TIMEOUT = 550, 3500

OK, INTERNAL, USAGE, DATA, DIVERGED, MEMORY, RANK, STORAGE, DEVICE, CHECK, STOPPED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 75

# Small and quick, with dropout and shuffling, so that a run resumed wrongly shows it.
SMALL = """
name: small
seed: 7
model:
  layers:
    - {type: linear, out_features: 24}
    - {type: gelu}
    - {type: dropout, rate: 0.2}
    - {type: linear, out_features: 4}
loss: {type: cross_entropy}
data:
  train: {type: synthetic, shape: [12], classes: 4, samples: 100, shuffle: true}
  eval: {type: synthetic, shape: [12], classes: 4, samples: 40, seed: 1}
optimizer: {type: adamw, learning_rate: 1.0e-2, weight_decay: 0.01}
lr_scheduler: {type: cosine, warmup_steps: 5}
training: {global_batch_size: 16, max_steps: 40, max_grad_norm: 1.0}
checkpoint: {save_steps: 10}
logging: {logging_steps: 1}
"""


def png(height, width, pixel):
    """A PNG file, RGB, of pixel(y, x)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"".join(bytes(pixel(y, x)) for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Result:
    """A finished run: code, out, err (text)."""

    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    def __str__(self):
        return f"$ {' '.join(self.command)}\n{self.out}{self.err}[exit code {self.code}]"


class DltrainTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dltrain-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.timeout = LONG_TIMEOUT if ".test_long_" in self.id() else TIMEOUT
        self.started = []
        self.addCleanup(self._end_all)

    def _end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def start(self, *arguments, **popen):
        """Starts dltrain; stdout and stderr are pipes."""
        return self.begin([PROGRAM, *map(str, arguments)], **popen)

    def begin(self, command, **popen):
        """The same for any command."""
        environment = dict(os.environ, OMP_WAIT_POLICY="passive")
        environment.update(popen.pop("env", {}))
        process = subprocess.Popen(command, cwd=popen.pop("cwd", SOURCES), env=environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **popen)
        self.started.append(process)
        return process

    def end(self, process):
        try:
            out, err = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.fail(f"hangs: {' '.join(process.args)}\n{out}{err}")
        self.started.remove(process)
        return Result(process.args, process.returncode, out, err)

    def run_dltrain(self, *arguments, code=OK, **popen):
        """Runs dltrain to its end and demands an exit code (None: whatever it is)."""
        result = self.end(self.start(*arguments, **popen))
        if code is not None:
            self.assertEqual(result.code, code, str(result))
        # A sweep and a profile do not write a config.yaml there: one that exists is not theirs.
        if result.code == OK and "--output-dir" in arguments and arguments[0] not in ("sweep", "profile") and not popen:
            self.check_configuration(pathlib.Path(arguments[arguments.index("--output-dir") + 1]) / "config.yaml", result)
        return result

    def check_configuration(self, path, result):
        """The configuration of a run, which resuming and all later commands read, is that of the run."""
        if not path.exists():
            return
        again = self.end(self.start("train", "--print-config", path))
        self.assertEqual((again.code, again.out), (OK, path.read_text()), f"{result}\n{again}")

    def refused(self, code, *arguments, says=(), **popen):
        """A mistake: the exit code, each of `says` on stderr, and no sign of a crash."""
        result = self.run_dltrain(*arguments, code=code, **popen)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.err, str(result))
        self.assertNotIn("internal error", result.err)
        return result

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return path

    def small(self, text=SMALL):
        return self.write("small.yaml", text)

    def wait_for(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail(f"waited {seconds} s for {what}")
            time.sleep(0.002)

    def assert_same_file(self, a, b):
        self.assertEqual(pathlib.Path(a).read_bytes(), pathlib.Path(b).read_bytes(), f"{a} and {b} differ")

    def assert_same_state(self, a, b, step=None):
        """The newest checkpoints (or those of `step`) of two run folders, byte by byte."""
        name = "latest" if step is None else f"step-{step:06}"
        found = [sorted((pathlib.Path(run) / "checkpoints" / name).glob("*.safetensors")) for run in (a, b)]
        self.assertGreaterEqual(len(found[0]), 2)
        self.assertEqual([path.name for path in found[0]], [path.name for path in found[1]])
        for one, other in zip(*found):
            self.assert_same_file(one, other)

    def assert_trajectory(self, run, golden, what):
        """The losses and gradient norms of a run are the recorded ones, in as many steps."""
        for series in ("loss", "grad_norm"):
            for line, expected in zip(steps(run), golden[series], strict=True):
                self.assertLessEqual(abs(line[series] - expected), 1e-5 * expected, f"{what}: {series} of step {line['step']}")


def metrics(run):
    """Lines of metrics.jsonl, and demands that each is one JSON object."""
    path = pathlib.Path(run) / "metrics.jsonl"
    text = path.read_text()
    # A reader can meet the first part of a line that is being written: the kernel copies page by page.
    end = time.monotonic() + 5
    while text and not text.endswith("\n") and time.monotonic() < end:
        text = path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def steps(run):
    """The lines about training steps, without the evaluations."""
    return [line for line in metrics(run) if "loss" in line]


def checkpoints(run):
    return sorted(path.name for path in (pathlib.Path(run) / "checkpoints").glob("step-*"))


def safetensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file, by the format's definition."""
    content = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    data = content[8 + size :]
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


FORMATS = {"F32": "f", "I32": "i", "I64": "q"}


def save_safetensors(path, tensors):
    """Writes {name: (dtype, shape, values)}, dtype F32, I32 or I64; returns the path."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def main():
    unittest.main(verbosity=2)
