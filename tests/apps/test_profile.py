"""dltrain profile: the table, the figures as JSON and the Chrome trace, on one rank and on two."""
import json
import os
import random
import re
import subprocess
import unittest

from support import DATA, SMALL, STORAGE, USAGE, DltrainTest, is_sanitized, main, png

SHARES = {"forward", "backward", "update", "communication", "data", "inputs", "results", "host"}


def read_trace(path):
    """{(pid, tid): slices}, and the events that are no slices."""
    events = json.loads(path.read_text())["traceEvents"]
    threads = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    return threads, [event for event in events if event["ph"] != "X"]


class Profile(DltrainTest):
    def profile(self, *arguments, **popen):
        """Runs it; the text, the figures and the trace."""
        out, result = self.folder / "out", self.folder / "result.json"
        run = self.run_dltrain("profile", self.small(), "--output-dir", out, "--result", result, "--warmup", 2, "--steps", 4, *arguments, **popen)
        return run.out, json.loads(result.read_text()), read_trace(out / "trace.json")

    def assert_nested(self, slices):
        """Slices of a thread lie beside or in each other (the clock has steps of a nanosecond)."""
        open_ends = []
        for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
                open_ends.pop()
            end = event["ts"] + event["dur"]
            self.assertTrue(not open_ends or end <= open_ends[-1] + 1e-3, f"{event} crosses another slice")
            open_ends.append(end)

    def test_the_parts_are_the_step_and_every_kernel_is_counted(self):
        text, figures, _ = self.profile()
        self.assertEqual(set(figures["shares_ms"]), SHARES)
        self.assertAlmostEqual(sum(figures["shares_ms"].values()) / figures["observed_step_ms"], 1, delta=1e-3)
        kernels = sum(figures["shares_ms"][phase] for phase in ("forward", "backward", "update"))
        plan = self.run_dltrain("plan", self.small()).out
        calls = int(re.search(r"(\d+) kernel calls", plan).group(1))
        for rows in ("ops", "layers", "calls"):
            self.assertAlmostEqual(sum(row["ms"] for row in figures[rows]) / kernels, 1, delta=1e-3)
            self.assertEqual(sum(row["calls"] for row in figures[rows]), calls, rows)
        products = [row for row in figures["ops"] if row["name"] == "matmul"]
        self.assertEqual(sum(row["calls"] for row in products), 5)  # two forward, two dw, one dx
        # 2·m·n·k each: 16 × 12 × 24 forward and dw, 16 × 24 × 4 all three.
        flops = 2 * 16 * (2 * 12 * 24 + 3 * 24 * 4)
        self.assertEqual(sum(row["flops"] for row in products), flops)
        self.assertEqual(figures["model_flops"], flops)
        self.assertAlmostEqual(figures["mfu"], flops / (figures["step_ms"] * 1e-3 * figures["limits"]["flops_f32"]), delta=1e-3 * figures["mfu"])
        for heading in ("device:", "limit:", "step:", "time of the observed step:", "slowest ops", "slowest layers", "slowest calls"):
            self.assertIn(heading, text)
        self.assertRegex(text, r"(?m)^  layers\.0 +\d")
        self.assertNotIn("\x1b", text)

    def test_it_says_what_bounds_the_step_and_what_could_be_better(self):
        text, figures, _ = self.profile()
        self.assertRegex(figures["verdicts"][0], r"^bound by (arithmetic|memory|data|overhead|communication): \d+ % of the step")
        self.assertIn("verdict:\n  " + figures["verdicts"][0], text)
        self.assertLessEqual(len(figures["gaps"]), 10)
        lengths = [gap["ms"] for gap in figures["gaps"]]
        self.assertEqual(lengths, sorted(lengths, reverse=True))
        kernels = figures["kernels"]
        phases = sum(figures["shares_ms"][phase] for phase in ("forward", "backward", "update"))
        self.assertAlmostEqual((kernels["limited_by_arithmetic_ms"] + kernels["limited_by_memory_ms"]) / phases, 1, delta=1e-3)
        svg = (self.folder / "out" / "roofline.svg").read_text()
        self.assertIn("<title>matmul", svg)

    def test_a_loader_that_decodes_large_images_is_named(self):
        for kind in ("a", "b"):
            for i in range(6):
                noise = random.Random(i).randbytes(3 * 400 * 400)
                self.write(f"images/{kind}/{i}.png", png(400, 400, lambda y, x: noise[3 * (400 * y + x): 3 * (400 * y + x) + 3]))
        config = self.write("images.yaml", """
model: {layers: [flatten, linear: auto]}
data: {type: image_folder, path: images, normalize: {mean: [0.5, 0.5, 0.5], std: [0.2, 0.2, 0.2]}, transforms: [resize: [8, 8]], workers: 1}
optimizer: {type: sgd, learning_rate: 0.01}
training: {global_batch_size: 8, max_steps: 3}
""")
        result = self.folder / "result.json"
        self.run_dltrain("profile", config, "--output-dir", self.folder / "out", "--result", result, "--warmup", 1, "--steps", 4)
        figures = json.loads(result.read_text())
        self.assertRegex(figures["verdicts"][0], r"^bound by data: \d+ % of the step$")
        said = [sentence for sentence in figures["verdicts"] if "of the step waits for data: its batches take" in sentence]
        self.assertEqual(len(said), 1, figures["verdicts"])
        self.assertRegex(said[0], r"of 1 loader thread \(\d+ % computing, \d+ % waiting for disk or cores\)")
        self.assertGreater(figures["loader"]["fill_ms"], figures["shares_ms"]["forward"])

    def images(self):
        for kind in ("a", "b"):
            for i in range(8):
                self.write(f"images/{kind}/{i}.png", png(8, 8, lambda y, x: bytes((i, x, y))))
        return self.write("images.yaml", """
model: {layers: [flatten, linear: 512, relu, linear: 512, relu, linear: auto]}
data: {type: image_folder, path: images, normalize: {mean: [0.5, 0.5, 0.5], std: [0.2, 0.2, 0.2]}, transforms: [resize: [8, 8]], workers: 1}
optimizer: {type: sgd, learning_rate: 0.01}
training: {global_batch_size: 8, max_steps: 3}
""")

    def verdicts(self, config, *arguments, **popen):
        result = self.folder / "result.json"
        self.run_dltrain("profile", config, "--output-dir", self.folder / "out", "--result", result, "--warmup", 2, "--steps", 6, *arguments, **popen)
        # The machine of a test is also used by others, which is true and no fault of the configuration.
        return [sentence for sentence in json.loads(result.read_text())["verdicts"] if "other processes use" not in sentence]

    def slow_disk(self, milliseconds, rank=""):
        """The environment of a program for which opening an image takes so long, on all ranks or one."""
        source = self.write("slow.c", f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int open_slowly(const char* name, const char* path, int flags, int mode) {{
  const char* own = getenv("RANK");
  if (strstr(path, ".png") && (!*"{rank}" || (own && !strcmp(own, "{rank}")))) usleep({1000 * milliseconds});
  return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, name))(path, flags, mode);
}}
#define OPEN(name) int name(const char* path, int flags, ...) {{ va_list a; va_start(a, flags); int mode = va_arg(a, int); va_end(a); \
  return open_slowly(#name, path, flags, mode); }}
OPEN(open)
OPEN(open64)
""")
        library = self.folder / "slow.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-D_FORTIFY_SOURCE=0", "-o", library, source, "-ldl"], check=True)
        return {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}

    @unittest.skipIf(is_sanitized(), "a sanitizer's library must be the first that is loaded")
    def test_a_slow_disk_is_named(self):
        said = self.verdicts(self.images(), env=self.slow_disk(10))
        self.assertRegex(said[0], r"^bound by data: [6-9]\d % of the step$")
        self.assertRegex(said[1], r"loader thread \(\d % computing, 9\d % waiting for disk or cores\); a faster disk or a packed file")
        self.assertEqual(len(said), 2, said)

    @unittest.skipIf(is_sanitized(), "a sanitizer's library must be the first that is loaded")
    def test_a_rank_that_waits_holds_up_the_others(self):
        said = self.verdicts(self.images(), "--nproc-per-node", 2, env=self.slow_disk(10, rank="1"))
        self.assertRegex(said[0], r"^bound by communication: [5-9]\d % of the step$")
        self.assertRegex(said[1], r"^[5-9]\d % of the step waits for other ranks \(the longest gap, [\d.]+ ms, in observed step \d")

    @unittest.skipIf(is_sanitized(), "kernels take most of the time then, not the calls")
    def test_tiny_ops_are_named(self):
        layers = "    - {type: linear, out_features: 2}\n    - {type: tanh}\n" * 20
        said = self.verdicts(self.small(SMALL.replace("  layers:\n", "  layers:\n" + layers)), env={"OMP_NUM_THREADS": "1"})
        self.assertTrue(any("the work is too small for its calls" in sentence for sentence in said), said)

    def test_rows_can_be_fewer_and_say_what_they_leave_out(self):
        text, figures, _ = self.profile("--rows", 2)
        self.assertIn(f"… {len(figures['ops']) - 2} more: ", text)
        quiet, _, _ = self.profile("--quiet")
        self.assertEqual(len(quiet.splitlines()), 1)
        self.assertIn("trace.json", quiet)

    def test_the_trace_shows_steps_calls_and_loader_and_slices_do_not_cross(self):
        _, figures, (threads, others) = self.profile("-s", "data.workers=1")
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in others if e["name"] == "thread_name"}
        for thread, slices in threads.items():
            self.assertIn(thread, names)
            self.assert_nested(slices)
            for event in slices:
                self.assertGreaterEqual(event["dur"], 0)
        training = next(slices for thread, slices in threads.items() if names[thread] == "training")
        steps = [e for e in training if e["name"].startswith("step ")]
        self.assertEqual([e["args"]["step"] for e in steps], [7, 8, 9, 10])  # behind 2 of warm-up and 4 plain ones
        calls = [e for e in training if e["cat"] == "op"]
        self.assertEqual(len(calls), 4 * sum(row["calls"] for row in figures["calls"]))
        product = next(e for e in calls if e["name"] == "layers.0 matmul")
        self.assertEqual(product["args"]["op"], "matmul")
        self.assertEqual(product["args"]["layer"], "layers.0")
        self.assertEqual(product["args"]["flops"], 2 * 16 * 12 * 24)
        self.assertIn("f32[16, 12]", product["args"]["inputs"])
        for phase in ("forward", "backward", "update"):
            self.assertEqual(sum(e["name"] == phase and e["cat"] == "segment" for e in training), 4)
        fills = [e for thread, slices in threads.items() if names[thread] == "data worker 0" for e in slices]
        self.assertTrue(fills)

    def test_micro_steps_and_precision_are_those_of_the_run(self):
        _, figures, (threads, _) = self.profile("-s", "training.gradient_accumulation_steps=2", "-s", "precision.compute=bf16")
        self.assertGreater(figures["limits"]["flops_low"], 0)
        self.assertEqual(figures["mfu_dtype"], "bf16")
        data = [e for slices in threads.values() for e in slices if e["name"] == "data"]
        self.assertEqual(len(data), 4 * 2)
        self.assertEqual(figures["model_flops"], 2 * 16 * (2 * 12 * 24 + 3 * 24 * 4))

    def test_two_ranks_share_a_trace_with_the_messages_between_them(self):
        text, figures, (threads, others) = self.profile("--nproc-per-node", 2, env={"OMP_NUM_THREADS": "1"})
        self.assertEqual({pid for pid, _ in threads}, {0, 1})
        self.assertEqual(len(figures["ranks"]), 2)
        self.assertEqual(figures["ranks"][0]["shares_ms"], figures["shares_ms"])
        self.assertGreater(figures["shares_ms"]["communication"], 0)
        self.assertIn("the same for every rank", text)
        for pid in (0, 1):
            begins = [e["id"] for e in others if e["ph"] == "b" and e["pid"] == pid]
            ends = [e["id"] for e in others if e["ph"] == "e" and e["pid"] == pid]
            self.assertTrue(begins)
            self.assertEqual(sorted(begins), sorted(ends))
        # Both began their steps at about the same time: one clock.
        starts = [min(e["ts"] for e in slices if e["name"] == "step 7") for slices in threads.values() if any(e["name"] == "step 7" for e in slices)]
        self.assertEqual(len(starts), 2)
        self.assertLess(abs(starts[0] - starts[1]), 1e6)

    def test_a_profile_is_no_run_and_the_time_limit_does_not_end_it(self):
        out = self.folder / "out"
        self.profile("-s", "training.max_time=0.001", "-s", "training.max_steps=3")
        self.assertEqual(sorted(os.listdir(out)), [".dltrain", "roofline.svg", "trace.json"])
        self.run_dltrain(self.small(), "-q", "--output-dir", out)
        self.profile()  # beside a run that is there
        self.assertIn("summary.json", os.listdir(out))

    def test_mistakes_are_told(self):
        small = self.small()
        self.refused(USAGE, "profile", says="no configuration")
        self.refused(USAGE, "profile", small, "--steps", 0, says="--steps")
        self.refused(USAGE, "profile", small, "-s", "optimizer.momentun=1", says="momentun")
        self.refused(USAGE, "profile", small, "--nproc-per-node", 3, says="16")
        self.refused(DATA, "profile", self.small(SMALL.replace("{type: synthetic, shape: [12], classes: 4, samples: 100, shuffle: true}", "{type: csv, path: nothing.csv}")), says="nothing.csv")
        blocked = self.write("file", "")
        self.refused(STORAGE, "profile", self.small(), "--output-dir", blocked / "inside", says=str(blocked))


if __name__ == "__main__":
    main()
