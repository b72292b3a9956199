"""dltrain launch --max-restarts: a run goes on from its newest checkpoint, whatever the number of ranks."""
import os
import re
import shutil
import signal
import time

from launching import LaunchTest, free_port, ranks_of
from support import OK, RANK, checkpoints, main, steps

# Long enough to be killed in, with many checkpoints.
LONG = ("-s", "training.max_steps=20000", "-s", "data.train.samples=100000", "-s", "checkpoint.save_steps=50", "-s", "logging.logging_steps=50")


class Restarts(LaunchTest):
    def wait_for_checkpoints(self, process, count=2):
        run = self.folder / "run"
        self.wait_for(lambda: process.poll() is not None or len(checkpoints(run)) >= count, "checkpoints")

    def assert_resumed_as_told(self, result):
        """The launcher tells the step from which the ranks then go on."""
        told = re.findall(r"^dltrain: restart 1 of 3 from the checkpoint of step (\d+)$", result.err, re.MULTILINE)
        log = (self.folder / "run" / "log.txt").read_text()
        self.assertEqual([int(step) for step in re.findall(r"resumed from .*/step-(\d+)$", log, re.MULTILINE)],
                         [int(step) for step in told], f"{result}\n{log}")
        self.assertEqual(len(told), 1, str(result))
        # An attempt also logs its first step.
        logged = {line["step"] for line in steps(self.folder / "run")}
        self.assertEqual(logged, {1, int(told[0]) + 1, *range(50, 20001, 50)})

    def test_a_killed_rank_costs_no_step(self):
        """A single rank, too, and with --overwrite, which must not discard the run of the first attempt."""
        run = self.folder / "run"
        for count, flags in ((1, ()), (1, ("--overwrite",)), (2, ("--overwrite",))):
            with self.subTest(ranks=count, flags=flags):
                whole = self.folder / f"whole-{count}"
                if not whole.exists():
                    self.run_dltrain(self.small(), "-q", "--output-dir", whole, "--nproc-per-node", count, *LONG)
                if flags:  # another run, which is to be discarded once
                    self.run_dltrain(self.small(), "-q", "--output-dir", run, "--max-steps", 10, "--overwrite")
                process = self.start("launch", "--nproc-per-node", count, "--max-restarts", 3, self.small(), "-q", "--output-dir", run,
                                     *flags, *LONG)
                self.wait_for(lambda: process.poll() is not None or "step-000010" not in checkpoints(run), "the end of the old run")
                self.wait_for_checkpoints(process)
                time.sleep(1)  # ranks tell where they are four times a second, later on busy cores
                pid = ranks_of(process)[count - 1]
                os.kill(pid, signal.SIGKILL)
                result = self.end(process)
                self.assertEqual(result.code, OK, str(result))
                self.assertRegex(result.err, rf"(?m)^dltrain: rank {count - 1} \(process {pid}\) was killed by signal 9 .* at step \d+")
                self.assert_resumed_as_told(result)
                self.assert_same_state(whole, run)

    def test_the_last_node_goes_on_alone(self):
        port, nodes = free_port(), []
        for _ in range(2):
            nodes.append(self.start("launch", "--nnodes", "1:2", "--max-restarts", 3, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf",
                                    "last_call_timeout=5", self.small(), "-q", "--output-dir", self.folder / "run", "--overwrite", *LONG))
        self.wait_for_checkpoints(nodes[0])
        first = next(node for node in nodes if 0 in ranks_of(node))
        nodes.remove(first)
        nodes[0].kill()
        result = self.end(first)
        self.assertEqual(result.code, OK, str(result))
        self.assertIn("was lost", result.err)
        self.assert_resumed_as_told(result)

    def test_the_end_tells_the_newest_checkpoint(self):
        for count in (1, 2):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start("launch", "--nproc-per-node", count, self.small(), "-q", "--output-dir", self.folder / "run", *LONG)
            self.wait_for_checkpoints(process, 3)
            os.kill(ranks_of(process)[0], signal.SIGKILL)
            result = self.end(process)
            self.assertEqual(result.code, RANK, str(result))
            newest = int(checkpoints(self.folder / "run")[-1][5:])
            self.assertIn(f"dltrain: the same command with --resume auto continues from step {newest}\n", result.err)


if __name__ == "__main__":
    main()
