"""Stages of a model on several ranks (parallelism.pipeline), as processes. Layouts are swept in tests/run/pipeline.cpp, with threads as
ranks."""
import json
import math
import os
import re
import shutil
import signal
import time

from launching import ENDLESS, LaunchTest, ranks_of
from support import MEMORY, OK, RANK, SMALL, SOURCES, STOPPED, USAGE, main, steps

GOLDEN = "tests/golden/language"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
MICRO = ("-s", "training.micro_batch_size=2", "-s", "checkpoint.save_total_limit=0")
TWO = ("-s", "parallelism.pipeline=2", *MICRO)


class Pipeline(LaunchTest):
    def train(self, configuration, folder, *arguments, ranks=1, code=OK):
        run = self.folder / folder
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--nproc-per-node", ranks, *arguments, env=ONE_THREAD, code=code)
        return run

    def test_stages_have_the_trajectory_of_torch(self):
        golden = json.loads((SOURCES / GOLDEN / "losses.json").read_text())["cases"]
        for model, ranks, stages, zero, schedule in (
                ("gpt2", 2, 2, 0, "1f1b"), ("gpt2", 4, 2, 1, "1f1b"), ("gpt2", 3, 3, 0, "zero_bubble"), ("albert", 2, 2, 0, "1f1b"),
                ("gpt2", 2, 2, 0, "interleaved, virtual_stages: 3"), ("albert", 2, 2, 0, "interleaved, virtual_stages: 2")):
            run = self.train(SOURCES / GOLDEN / f"{model}.yaml", f"{model}-{ranks}-{stages}-{schedule[:5]}", "-s",
                             f"parallelism={{pipeline: {stages}, zero_stage: {zero}, pipeline_schedule: {schedule}}}",
                             "-s", "training.micro_batch_size=1", ranks=ranks)
            self.assert_trajectory(run, golden[model]["f64"], f"{model}, {stages} stages on {ranks} ranks")

    def test_one_rank_continues_a_pipeline_to_the_bit_and_the_reverse(self):
        alone = self.train(self.small(), "alone", *MICRO)
        stages = self.train(self.small(), "stages", *TWO, ranks=2)
        self.assertEqual([line["loss"] for line in steps(stages)], [line["loss"] for line in steps(alone)])
        for name, source, arguments, ranks in (("to-one", stages, MICRO, 1), ("to-two", alone, TWO, 2), ("same", stages, TWO, 2)):
            run = self.train(self.small(), name, *arguments, "--resume", source / "checkpoints" / "step-000020", ranks=ranks)
            self.assertEqual([line["loss"] for line in steps(run)], [line["loss"] for line in steps(alone)[20:]], name)
        evaluations = [re.sub("^.*?: ", "", self.run_dltrain("eval", run).out) for run in (alone, stages)]
        self.assertEqual(*evaluations)

    def test_interleaved_stages_continue_other_layouts_to_the_bit_and_the_reverse(self):
        deep = ("-s", "model.layers=[{linear: 8}, relu, {linear: 8}, relu, {linear: 8}, relu, {linear: 4}]", *MICRO)
        chunks = (*deep, "-s", "parallelism={pipeline: 2, pipeline_schedule: interleaved, virtual_stages: 2}")
        alone = self.train(self.small(), "alone", *deep)
        stages = self.train(self.small(), "stages", *chunks, ranks=2)
        self.assertEqual([line["loss"] for line in steps(stages)], [line["loss"] for line in steps(alone)])
        for name, source, arguments, ranks in (("to-one", stages, deep, 1), ("to-chunks", alone, chunks, 2), ("same", stages, chunks, 2),
                                               ("to-1f1b", stages, (*deep, *TWO), 2)):
            run = self.train(self.small(), name, *arguments, "--resume", source / "checkpoints" / "step-000020", ranks=ranks)
            self.assertEqual([line["loss"] for line in steps(run)], [line["loss"] for line in steps(alone)[20:]], name)
        evaluations = [re.sub("^.*?: ", "", self.run_dltrain("eval", run).out) for run in (alone, stages)]
        self.assertEqual(*evaluations)

    def test_a_stopped_pipeline_continues_to_the_bit(self):
        length = ("-s", "training.max_steps=600")
        whole = self.train(self.small(), "whole", *TWO, *length, ranks=2)
        process = self.start("launch", "--nproc-per-node", 2, "--", self.small(), "-q", "--output-dir", self.folder / "run", *TWO,
                             *length, env=ONE_THREAD)
        self.wait_for_a_step(process)
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        run = self.train(self.small(), "run", *TWO, *length, "--resume", "auto", ranks=2)
        self.assertEqual(steps(run)[-1]["loss"], steps(whole)[-1]["loss"])

    def test_a_lost_or_stopped_stage_is_named_in_time(self):
        for victim, with_signal in ((0, signal.SIGSTOP), (2, signal.SIGSTOP), (1, signal.SIGKILL)):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start("launch", "--nproc-per-node", 3, "--", self.small(SMALL.replace("16", "18")), "-q", "--output-dir",
                                 self.folder / "run", *ENDLESS, "-s", "parallelism.timeout=1", "-s", "training.micro_batch_size=2",
                                 "-s", "model.layers=[{linear: 16}, relu, {linear: 16}, relu, {linear: 4}]",
                                 "-s", "parallelism.pipeline=3", "-s", "parallelism.pipeline_stages=[layers.2, layers.4]",
                                 "-s", "checkpoint.save_steps=null")  # all messages are those of steps
            self.wait_for_a_step(process)
            time.sleep(0.6)  # they tell where they are four times a second
            pid = ranks_of(process)[victim]
            os.kill(pid, with_signal)
            begin = time.monotonic()
            result = self.end(process)
            self.assertLess(time.monotonic() - begin, 3, str(result))
            self.assertEqual(result.code, RANK, str(result))
            self.assertRegex(result.err, rf"dltrain: rank {victim} \(process {pid}")
            if with_signal == signal.SIGSTOP:
                self.assertRegex(result.err, r" (in|after) \w+ .* \((layers\.\d|optimizer|loss|metric|pipeline)[^)]*, axis pipeline\)|\((whether|what) ")

    def test_what_does_not_fit_is_refused(self):
        for ranks, arguments, message in (
                (3, TWO, "3 ranks cannot be divided into groups of 2 for pipeline parallelism"),
                (5, ("-s", "parallelism.pipeline=5"), "the model has only 2 layers with parameters; take at most 2"),
                (2, (*TWO, "-s", "parallelism.pipeline_stages=[a, b]"), "2 layers, but 2 stages need 1"),
                (2, (*TWO, "-s", "parallelism.pipeline_stages=[foo]"), "no stage can begin with 'foo'"),
                (2, (*TWO, "-s", "parallelism.pipeline_schedule=interleaved"), "give virtual_stages of 2 or more"),
                (2, (*TWO, "-s", "parallelism.virtual_stages=2"), "virtual_stages 2 needs pipeline_schedule: interleaved"),
                (2, (*TWO, "-s", "parallelism={pipeline_schedule: interleaved, virtual_stages: 2}"),
                 "4 stages, but the model has only 2 layers with parameters; take at most 2")):
            result = self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "refused", "--nproc-per-node", ranks, *arguments,
                                      code=USAGE)
            self.assertIn(message, result.err)
            self.assertEqual(result.err.count("error:"), 1, str(result))

    def test_the_plan_shows_the_stages(self):
        result = self.run_dltrain("plan", self.small(), *TWO)
        self.assertRegex(result.out, r"\nstages \(1f1b, 8 micro-batches; by FLOP the slowest waits for \d+ % of a step\):\n")
        for stage, said in (1, 0), (2, 1), (3, 1):
            result = self.run_dltrain("plan", self.small(), *TWO, "--world", 4, "-s", f"parallelism.zero_stage={stage}")
            self.assertEqual(result.out.count("every micro-batch reduces gradients"), said, str(result))
        result = self.run_dltrain("plan", SOURCES / "configs/gpu/gpt2_124m.yaml", "-s", "training={global_batch_size: 8, micro_batch_size: 1}",
                                  "-s", "parallelism={pipeline: 4, pipeline_schedule: interleaved, virtual_stages: 3}")
        self.assertRegex(result.out, r"\nstages \(interleaved, 3 on each rank, 8 micro-batches; by FLOP the slowest waits for \d+ % of a step\):\n"
                                     r"   rank  .*\n      0  wte to h\.\S+, 2 more ")
        result = self.run_dltrain("plan", self.small(), "-s", "parallelism.pipeline=2")
        self.assertIn("warning: parallelism.pipeline 2 with 1 micro-batch a step: each stage waits for 50 % of the time", result.out)

    def test_the_plan_writes_the_estimated_step_as_a_trace(self):
        trace = self.folder / "step.json"
        result = self.run_dltrain("plan", SOURCES / "configs/gpu/gpt2_124m.yaml", "--gpu", "l4", "--world", 4, "--timeline", trace, "-s",
                                  "parallelism={pipeline: 4}", "-s", "training={global_batch_size: 8, micro_batch_size: 1}")
        step = float(re.search(r"  step ([\d.]+) ms", result.out)[1])
        slices = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
        for stage in range(4):
            segments = [e for e in slices if e["pid"] == stage and e.get("cat") == "segment"]
            self.assertEqual(len(segments), 2 * 8 + 1)  # forwards, backwards, update
            for one, next_one in zip(segments, segments[1:]):
                self.assertLessEqual(one["ts"] + one["dur"], next_one["ts"] + 0.01)
        self.assertAlmostEqual(max(e["ts"] + e["dur"] for e in slices) / 1e3, step, delta=0.02)
        # The calls of the first stage lie within its segments.
        calls = sum(e["dur"] for e in slices if e["pid"] == 0 and e.get("cat") == "call")
        whole = sum(e["dur"] for e in slices if e["pid"] == 0 and e.get("cat") == "segment")
        self.assertGreater(calls, 0.5 * whole)
        self.assertLessEqual(calls, 1.001 * whole)
        result = self.run_dltrain("plan", SOURCES / "configs/gpu/gpt2_124m.yaml", "--gpu", "all", "--timeline", trace, code=USAGE)
        self.assertIn("--timeline, --frontier and --movement require one GPU", result.err)

    def test_the_search_finds_layouts_that_fit(self):
        configuration = SOURCES / "configs/gpu/gpt2_124m_b16.yaml"
        search = ("--gpu", "l4", "--world", 4, "--search")
        result = self.run_dltrain("plan", configuration, *search)
        best = re.search(r"^the fastest that fits: (.*)$", result.out, re.MULTILINE)[1].split()
        rows = [line.split() for line in result.out.splitlines() if re.match(r"  +\d+  +\d+  +\d+  +\d+(x\d+| zb)?  +\d ", line)]
        self.assertGreater(len(rows), 1, str(result))
        rows = [[value for value in row if value != "zb"] for row in rows if "fit:" not in row]
        times = [float(row[7]) for row in rows]
        self.assertEqual(times, sorted(times))
        self.assertIn("1", {row[1] for row in rows})
        self.assertIn("2", {row[1] for row in rows}, "no context ranks were considered")
        self.assertEqual(math.prod(int(value.split("x")[0]) for value in rows[0][:4]), 4)
        self.assertRegex(result.out, r"GiB  \+\d+ %: (compute|messages|waits) \+[\d.]+ ms")
        planned = self.run_dltrain("plan", configuration, *best, "--gpu", "l4", "--world", 4)
        self.assertRegex(planned.out, r"memory .* GiB, .*: fits")
        self.assertIn(f"step {times[0]:.1f}"[:-2], planned.out)
        # Nothing fits: the least that is missing is shown.
        result = self.run_dltrain("plan", SOURCES / "configs/gpu/gpt2_xl.yaml", "--gpu", "t4", "--world", 2, "--search",
                                  "-s", "precision.compute=fp16", code=MEMORY)
        self.assertRegex(result.out, r"does not fit: [\d.]+ of [\d.]+ GiB")
        result = self.run_dltrain("plan", configuration, "--search", code=USAGE)
        self.assertIn("--search requires --gpu, and --world with at least 2 ranks", result.err)
        for other in (("--passes",), ("--frontier",), ("--timeline", self.folder / "t.json"), ("--disk", 1e9), ("--grace", 60)):
            self.refused(USAGE, "plan", configuration, *search, *other, says=f"{other[0]} excludes --search")


main()
