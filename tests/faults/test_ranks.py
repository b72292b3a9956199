"""Faults while several ranks train: whatever happens, with restarts the final weights are those of an undisturbed run."""
import fcntl
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import time

from launching import ranks_of
from support import OK, SMALL, STOPPED, STORAGE, DltrainTest, checkpoints, main, steps

RUN = ("-s", "checkpoint.save_steps=20", "-s", "checkpoint.save_total_limit=2", "-s", "training.global_batch_size=16")

# The same number of threads for every layout, or bits differ (docs/equality.md).
os.environ["OMP_NUM_THREADS"] = "1"


def children(process):
    """Process numbers of the living ranks of a launcher."""
    try:
        return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class Ranks(DltrainTest):
    def logged(self):
        """The last step in the run's metrics, 0 before the first."""
        path = self.folder / "run" / "metrics.jsonl"
        try:
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - 4096))
                lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b'{"step":')]
        except FileNotFoundError:
            return 0
        return int(lines[-1][8:].split(b",")[0]) if lines else 0

    def disturb(self, faults, distance, seed, layout=()):
        """Trains on 4 ranks while a random rank is hit every so many steps; every third time it is stopped, not killed."""
        print(f"seed {seed}", flush=True)
        dice = random.Random(seed)
        length = ("-s", f"training.max_steps={distance * (faults + 1)}", *layout)
        self.run_dltrain(self.small(), "-q", "--output-dir", self.folder / "quiet", "--nproc-per-node", 4, *RUN, *length)
        process = self.start("launch", "--nproc-per-node", 4, "--max-restarts", 1000, self.small(), "-q", "--output-dir",
                             self.folder / "run", *RUN, *length, "-s", "parallelism.timeout=3")  # on a busy machine a rank may not run for a second
        for fault in range(faults):
            target = distance * fault + dice.randint(1, distance)
            self.wait_for(lambda: process.poll() is not None or self.logged() >= target, f"step {target}")
            self.assertIsNone(process.poll(), "the run ended too early")
            hit = dice.choice(children(process))
            os.kill(hit, signal.SIGSTOP if fault % 3 == 2 else signal.SIGKILL)
            self.wait_for(lambda: hit not in children(process), f"the end of process {hit}")
        result = self.end(process)
        self.assertEqual(result.code, OK, str(result))
        self.assertEqual(result.err.count("dltrain: restart "), faults, str(result))
        self.assert_same_state(self.folder / "quiet", self.folder / "run")
        key = lambda line: (line["step"], line["loss"], line["grad_norm"])
        self.assertEqual([key(line) for line in steps(self.folder / "run")], [key(line) for line in steps(self.folder / "quiet")])

    def test_killed_and_stopped_ranks_cost_nothing_but_time(self):
        self.disturb(faults=5, distance=120, seed=time.time_ns())

    def test_killed_and_stopped_stages_cost_nothing_but_time(self):
        self.disturb(faults=3, distance=60, seed=4, layout=("-s", "parallelism.pipeline=2", "-s", "training.micro_batch_size=2"))

    def test_killed_and_stopped_ranks_of_shared_layers_cost_nothing_but_time(self):
        self.disturb(faults=3, distance=60, seed=5, layout=self.layout("tensor: 2, pipeline: 2, pipeline_schedule: zero_bubble"))

    def test_long_faults_under_every_axis_cost_nothing_but_time(self):
        for axes in ("tensor: 4", "tensor: 2, zero_stage: 2", "pipeline: 4, pipeline_schedule: gpipe", "pipeline: 4, pipeline_schedule: zero_bubble",
                     "pipeline: 2, pipeline_schedule: interleaved, virtual_stages: 2", "tensor: 2, pipeline: 2, zero_stage: 1"):
            with self.subTest(axes):
                self.disturb(faults=15, distance=60, seed=time.time_ns(), layout=self.layout(axes))
                shutil.rmtree(self.folder / "run")
                shutil.rmtree(self.folder / "quiet")

    def test_long_faults_under_parts_of_texts_and_experts_cost_nothing_but_time(self):
        model = ("{layers: [{embedding: {embedding_dim: 16}}, {residual: [layer_norm, {multi_head_attention: {num_heads: 2, causal: true}}]}, "
                 "{residual: [{moe: {num_experts: 4, experts_per_token: 2, intermediate_size: 16}}]}, {lm_head: {}}]}")
        for axes in ("context: 2, context_method: ring", "context: 4, context_method: all_gather", "expert: 2", "expert: 4, context: 2, zero_stage: 1"):
            with self.subTest(axes):
                self.disturb(faults=9, distance=40, seed=time.time_ns(), layout=(
                    "-s", f"parallelism={{{axes}}}", "-s", "training.micro_batch_size=4", "-s", f"model={model}", "-s",
                    "data.train={type: synthetic_tokens, vocab_size: 29, length: 16, samples: 64}", "-s", "data.eval=null"))
                shutil.rmtree(self.folder / "run")
                shutil.rmtree(self.folder / "quiet")

    @staticmethod
    def layout(axes):
        """A model of four linear layers on these axes."""
        return ("-s", f"parallelism={{{axes}}}", "-s", "training.micro_batch_size=2",
                "-s", "model.layers=[{linear: 16}, relu, {linear: 16}, relu, {linear: 16}, relu, {linear: 4}]")

    def test_long_fifty_faults_cost_nothing_but_time(self):
        self.disturb(faults=50, distance=200, seed=time.time_ns())

    def name_hangs(self, hangs, seed):
        """Stops a random rank of 3 again and again; the launcher names it and ends it a second after the timeout of a second."""
        print(f"seed {seed}", flush=True)
        dice = random.Random(seed)
        process = self.start("launch", "--nproc-per-node", 3, "--max-restarts", 100_000, self.small(SMALL.replace("16", "18")), "-q",
                             "--output-dir", self.folder / "run", "-s", "training.max_steps=100000000", "-s", "parallelism.timeout=1",
                             "-s", "checkpoint.save_steps=20", "-s", "checkpoint.save_total_limit=2", "-s", "lr_scheduler.type=constant")
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 1 << 20)  # 200 restarts print more than the 64 KiB of a pipe
        victims, times, target = [], [], 0
        for _ in range(hangs):
            target = self.logged() + dice.randint(30, 90)
            self.wait_for(lambda: process.poll() is not None or self.logged() >= target, f"step {target}")
            self.assertIsNone(process.poll(), "the run ended too early")
            ranks = ranks_of(process)
            time.sleep(0.3)  # they tell where they are four times a second
            victims.append(dice.choice(sorted(ranks)))
            begin = time.monotonic()
            os.kill(ranks[victims[-1]], signal.SIGSTOP)
            self.wait_for(lambda: ranks[victims[-1]] not in children(process), f"the end of rank {victims[-1]}")
            times.append(time.monotonic() - begin)
        target = self.logged() + 30
        self.wait_for(lambda: process.poll() is not None or self.logged() >= target, f"step {target}")
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        named = re.findall(r"^dltrain: rank (\d) .* (?:has sent no heartbeat for|hangs at step) ", result.err, re.MULTILINE)
        self.assertEqual([int(rank) for rank in named], victims, str(result))
        late = [seconds for seconds in times if seconds > 2]
        print(f"{hangs} hangs: all named; gone after {min(times):.2f} to {max(times):.2f} s, {len(late)} after more than 2")
        self.assertLess(max(times), 4, str(times))

    def test_3_hangs_are_named_a_second_after_the_timeout(self):
        self.name_hangs(3, seed=time.time_ns())

    def test_long_200_hangs_are_named_a_second_after_the_timeout(self):
        self.name_hangs(200, seed=time.time_ns())

    def test_a_full_disk_of_rank_0_ends_all_with_its_code(self):
        big = self.small(SMALL.replace("out_features: 24", "out_features: 4000").replace("type: cosine", "type: constant"))
        run = self.folder / "run"
        self.run_dltrain(big, "-q", "--output-dir", run, "--nproc-per-node", 2, "--max-steps", 10)

        def limit():
            # The limit on the size of a file stands for a full disk: both fail in write().
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        process = self.start("launch", "--nproc-per-node", 2, big, "--output-dir", run, "--resume", "auto", preexec_fn=limit)
        result = self.end(process)
        self.assertEqual(result.code, STORAGE, str(result))
        self.assertIn("step-000020", result.err)
        self.assertRegex(result.err, r"dltrain: rank 0 \(process \d+\) failed with exit code 7 at step \d+\n")
        self.assertEqual(result.err.count("File too large"), 1, str(result))
        self.assertNotIn("[rank 1]", result.err)
        self.assertEqual(checkpoints(run), ["step-000010"])
        # With space again the run goes on as if nothing had been.
        self.run_dltrain(big, "-q", "--output-dir", run, "--resume", "auto", "--nproc-per-node", 2)
        self.run_dltrain(big, "-q", "--output-dir", self.folder / "whole", "--nproc-per-node", 2)
        self.assert_same_state(run, self.folder / "whole")

    def test_restarts_repeat_what_was_asked_until_the_run_has_begun(self):
        """An --overwrite that was interrupted must neither resume the old run nor lose the new one."""
        run = self.folder / "run"
        configuration = self.small()
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--max-steps", 30)  # the old run, another one
        process = self.start("launch", "--nproc-per-node", 2, "--max-restarts", 5, configuration, "-q", "--output-dir", run,
                             "--overwrite", "--seed", 5, "-s", "training.max_steps=400", "-s", "checkpoint.save_steps=50")
        self.wait_for(lambda: len(children(process)) == 2, "the ranks")
        os.kill(children(process)[1], signal.SIGKILL)  # most likely before the first step
        self.wait_for(lambda: process.poll() is not None or (run / "checkpoints" / "step-000050").exists(), "a checkpoint")
        for pid in children(process)[:1]:
            os.kill(pid, signal.SIGKILL)
        result = self.end(process)
        self.assertEqual(result.code, OK, str(result))
        self.run_dltrain(configuration, "-q", "--output-dir", self.folder / "whole", "--nproc-per-node", 2, "--seed", 5, "-s",
                         "training.max_steps=400", "-s", "checkpoint.save_steps=50")
        self.assert_same_state(run, self.folder / "whole")


if __name__ == "__main__":
    main()
