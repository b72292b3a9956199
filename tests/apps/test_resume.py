"""Stopping and going on: by step limit, signal, time limit and kill -9, always bit-identical to a run that was
not disturbed."""
import json
import os
import random
import resource
import shutil
import signal
import time

import support
from support import OK, SMALL, STOPPED, STORAGE, USAGE, checkpoints, metrics, steps

# Long enough to be hit in the middle, short enough to be run many times.
LONGER = (SMALL.replace("max_steps: 40", "max_steps: 400").replace("save_steps: 10", "save_steps: 40")
          .replace("out_features: 24", "out_features: 200"))


def trajectory(run):
    """What a step and an evaluation computed, without what a clock says."""
    exact = ("step", "epoch", "loss", "accuracy", "learning_rate", "grad_norm", "eval_loss", "eval_accuracy")
    return [{key: line[key] for key in exact if key in line} for line in metrics(run)]


class Resume(support.DltrainTest):
    def whole_run(self, configuration, *arguments):
        run = self.folder / "whole"
        self.run_dltrain(configuration, "-q", "--output-dir", run, *arguments)
        return run

    def assert_as_undisturbed(self, run, whole):
        self.assert_same_state(run, whole)
        self.assertEqual(trajectory(run), trajectory(whole))

    def test_a_run_whose_steps_grow_is_bit_identical_to_one_that_ran_through(self):
        # The constant schedule does not depend on where the run ends.
        configuration = self.small(SMALL.replace("type: cosine", "type: constant"))
        whole = self.whole_run(configuration, "-s", "data.eval=null")
        run = self.folder / "run"
        for limit in (1, 13, 20, 40):
            self.run_dltrain(configuration, "-q", "--output-dir", run, "--max-steps", limit, "--resume", "auto",
                             "-s", "data.eval=null")
        self.assert_as_undisturbed(run, whole)

    def test_bf16_and_fp16_runs_whose_steps_grow_are_bit_identical_to_ones_that_ran_through(self):
        configuration = self.small(SMALL.replace("type: cosine", "type: constant"))
        # The loss scale of fp16 is too large at first, and doubles every few steps after that.
        for precision in ("{compute: bf16}", "{compute: bf16, parameters: bf16}", "{compute: fp16, init_scale: 16777216, growth_interval: 4}"):
            options = ("-s", f"precision={precision}", "-s", "data.eval=null", "--overwrite")
            whole = self.whole_run(configuration, *options)
            run = self.folder / "run"
            self.run_dltrain(configuration, "-q", "--output-dir", run, "--max-steps", 7, *options)
            self.run_dltrain(configuration, "-q", "--output-dir", run, "--resume", "auto", *options[:-1])
            self.assert_as_undisturbed(run, whole)

    def test_a_run_resumed_from_a_named_checkpoint_is_bit_identical_to_one_that_ran_through(self):
        configuration = self.small()
        whole = self.whole_run(configuration, "-s", "checkpoint.save_total_limit=0")
        for place in (whole / "checkpoints" / "step-000010", whole / "checkpoints" / "step-000030"):
            other = self.folder / f"from-{place.name}"
            self.run_dltrain(configuration, "-q", "--output-dir", other, "--resume", place)
            self.assert_same_state(other, whole)
            self.assertEqual([line["step"] for line in steps(other)], list(range(int(place.name[5:]) + 1, 41)))

    def test_a_run_folder_that_is_a_link_is_overwritten_and_resumed(self):
        configuration, real, link = self.small(), self.folder / "real", self.folder / "link"
        real.mkdir()
        link.symlink_to(real)
        for arguments in ((), ("--overwrite", "--max-steps", 20), ("--resume", "auto")):
            self.run_dltrain(configuration, "-q", "--output-dir", link, *arguments)
            self.assertTrue(link.is_symlink())
        self.assertEqual(metrics(real)[-1]["step"], 40)
        # What refuses leaves the list of files as it was.
        (real / "checkpoints" / "mine").mkdir()
        before = (real / ".dltrain").read_text()
        self.refused(USAGE, configuration, "--output-dir", link, "--overwrite", says="was not written by dltrain")
        self.assertEqual((real / ".dltrain").read_text(), before)

    def test_a_finished_run_is_resumed_without_another_step(self):
        configuration = self.small()
        whole = self.whole_run(configuration)
        before = (whole / "metrics.jsonl").read_text()
        self.run_dltrain(configuration, "-q", "--output-dir", whole, "--resume", "auto")
        self.assertEqual((whole / "metrics.jsonl").read_text(), before)

    def test_resume_auto_begins_where_nothing_is(self):
        configuration = self.small()
        whole = self.whole_run(configuration)
        self.run_dltrain(configuration, "-q", "--output-dir", self.folder / "run", "--resume", "auto")
        self.assert_as_undisturbed(self.folder / "run", whole)

    def test_resume_auto_without_a_checkpoint_says_that_the_run_begins_anew(self):
        configuration = self.small()
        whole = self.whole_run(configuration)
        shutil.rmtree(whole / "checkpoints")
        said = self.run_dltrain(configuration, "-q", "--output-dir", whole, "--resume", "auto").err
        self.assertIn(f"{whole} contains no checkpoint: the run starts from the beginning", said)
        self.assertEqual(len(steps(whole)), 40)

    def interrupt(self, configuration, run, number, *arguments):
        """Starts or resumes, sends the signal after some steps; the result."""
        process = self.start(configuration, "--output-dir", run, "--resume", "auto", *arguments)
        file = run / "metrics.jsonl"
        before = file.stat().st_size if file.exists() else 0
        self.wait_for(lambda: process.poll() is not None or file.exists() and file.stat().st_size > before + 2000,
                      "the first steps")
        process.send_signal(number)
        return self.end(process)

    def test_sigterm_and_sigint_end_in_a_checkpoint_and_code_75(self):
        configuration = self.small(LONGER.replace("max_steps: 400", "max_steps: 4000").replace("save_steps: 40", "save_steps: 4000"))
        whole = self.whole_run(configuration)
        run = self.folder / "run"
        for number in (signal.SIGTERM, signal.SIGINT):
            result = self.interrupt(configuration, run, number)
            self.assertEqual(result.code, STOPPED, str(result))
            self.assertIn("--resume auto", result.err)
            summary = json.loads((run / "summary.json").read_text())
            self.assertEqual((summary["exit_code"], summary["reason"]), (STOPPED, "signal"))
            self.assertEqual(checkpoints(run)[-1], f"step-{summary['steps']:06}")
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--resume", "auto")
        self.assert_as_undisturbed(run, whole)

    def test_sigterm_ends_two_ranks_in_one_checkpoint_and_code_75(self):
        configuration = self.small(LONGER.replace("max_steps: 400", "max_steps: 1000").replace("save_steps: 40", "save_steps: 4000"))
        whole = self.whole_run(configuration, "--nproc-per-node", 2)
        run = self.folder / "run"
        result = self.interrupt(configuration, run, signal.SIGTERM, "--nproc-per-node", 2)
        self.assertEqual(result.code, STOPPED, str(result))
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--resume", "auto", "--nproc-per-node", 2)
        self.assert_as_undisturbed(run, whole)

    def test_the_time_limit_ends_in_a_checkpoint_and_code_75(self):
        configuration = self.small()
        run = self.folder / "run"
        result = self.run_dltrain(configuration, "-q", "--output-dir", run, "--max-steps", 100_000_000,
                                  "-s", "training.max_time=0.3", "-s", "checkpoint.save_steps=100000000",
                                  "-s", "logging.logging_steps=1000", code=STOPPED)
        self.assertIn("time limit", result.err)
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual(summary["reason"], "time limit")
        self.assertGreater(summary["steps"], 0)
        self.assertEqual(checkpoints(run), [f"step-{summary['steps']:06}"])

    def kill_at_random_moments(self, times, seed):
        """Kills a run `times` times, each while it works, then lets it end."""
        generator = random.Random(seed)
        configuration = self.small(LONGER)
        begin = time.monotonic()
        whole = self.whole_run(configuration)
        duration = time.monotonic() - begin
        hits = 0
        while hits < times:
            run = self.folder / "run"
            process = self.start(configuration, "-q", "--output-dir", run, "--resume", "auto")
            time.sleep(generator.uniform(0, duration))
            if process.poll() is None:
                process.kill()
                hits += 1
            result = self.end(process)
            self.assertIn(result.code, (OK, -signal.SIGKILL), str(result))
            if result.code == OK:  # through: once more from the start
                self.assert_as_undisturbed(run, whole)
                shutil.rmtree(run)
        self.run_dltrain(configuration, "-q", "--output-dir", self.folder / "run", "--resume", "auto")
        self.assert_as_undisturbed(self.folder / "run", whole)

    def test_a_run_killed_at_3_random_moments_is_bit_identical_when_resumed(self):
        self.kill_at_random_moments(3, seed=1)

    def test_long_a_run_killed_at_300_random_moments_is_bit_identical_when_resumed(self):
        self.kill_at_random_moments(300, seed=2)

    def kill_while_saving(self, times, seed):
        """With a checkpoint a step most of the time goes into writing them."""
        generator = random.Random(seed)
        configuration = self.small(LONGER.replace("save_steps: 40", "save_steps: 1"))
        run = self.folder / "run"
        reached = 0
        for _ in range(times):
            process = self.start(configuration, "-q", "--output-dir", run, "--resume", "auto", "--max-steps", 1_000_000,
                                 "-s", "lr_scheduler.type=constant", "-s", "data.eval=null")
            first = reached
            wanted = first + generator.randint(1, 4)
            # Or a later one: where this process is held up, the one that is wanted may have gone already.
            self.wait_for(lambda: process.poll() is not None or any(int(name[5:]) >= wanted for name in checkpoints(run)),
                          f"step {wanted}")
            time.sleep(generator.uniform(0, 0.01))
            process.kill()
            result = self.end(process)
            self.assertEqual(result.code, -signal.SIGKILL, str(result))
            measured = self.run_dltrain("eval", configuration, "--checkpoint", run / "checkpoints" / "latest")
            self.assertIn("loss", measured.out)
            # A checkpoint that was complete is not lost, though the link may point at the one before.
            reached = int(checkpoints(run)[-1][5:])
            self.assertGreaterEqual(reached, wanted)
        # And what was trained in between is what an undisturbed run trains.
        limit = reached + 1
        for folder, extra in ((run, ("--resume", "auto")), (self.folder / "whole", ())):
            self.run_dltrain(configuration, "-q", "--output-dir", folder, "--max-steps", limit, "-s",
                             "lr_scheduler.type=constant", "-s", "data.eval=null", "-s", "checkpoint.save_steps=1", *extra)
        self.assert_same_state(run, self.folder / "whole")
        # The leftovers of kills are removed, and save_total_limit holds again.
        self.assertEqual(checkpoints(run), checkpoints(self.folder / "whole"))
        self.assertEqual(sorted(os.listdir(run / "checkpoints")), sorted([*checkpoints(run), "latest"]))

    def fill_the_disk(self, times, seed):
        """No file may grow beyond a random size, as on a full disk; each time the run is resumed."""
        def limited(size):
            def limit():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            return limit

        generator = random.Random(seed)
        configuration = self.small(LONGER.replace("save_steps: 40", "save_steps: 20").replace("out_features: 200", "out_features: 1500"))
        whole = self.whole_run(configuration)
        largest = max(file.stat().st_size for file in whole.rglob("*") if file.is_file())
        run = self.folder / "run"
        failed = complete = 0
        while failed < times:
            size = int(largest * generator.uniform(0.1, 1.05)) if generator.random() < 0.7 else int(largest ** generator.random())
            if generator.random() < 0.3:
                shutil.rmtree(run, ignore_errors=True)
                self.run_dltrain(configuration, "-q", "--output-dir", run, "--stop-at", generator.randint(1, 399), code=STOPPED)
            before = checkpoints(run) if (run / "checkpoints").exists() else []
            result = self.run_dltrain(configuration, "-q", "--output-dir", run, "--resume", "auto", code=None, preexec_fn=limited(size))
            self.assertNotIn("internal error", result.err, f"{size} {result}")
            if result.code == OK:
                self.assert_same_state(run, whole)
                shutil.rmtree(run)
                complete += 1
                continue
            self.assertEqual(result.code, STORAGE, f"{size} {result}")
            self.assertRegex(result.err, "cannot write|File too large", f"{size} {result}")
            failed += 1
            if not before:
                continue
            self.assertGreaterEqual(checkpoints(run)[-1], before[-1], f"{size} {result}")
            self.run_dltrain("eval", configuration, "--checkpoint", run / "checkpoints" / "latest")
        self.run_dltrain(configuration, "-q", "--output-dir", run, "--resume", "auto")
        self.assert_same_state(run, whole)
        # --stop-at ends with an evaluation, which the undisturbed run does not have.
        losses = [[line["loss"] for line in steps(folder)] for folder in (run, whole)]
        self.assertEqual(losses[0], losses[1])
        print(f"full disks: {failed} failures of writing, {complete} complete runs, 0 lost checkpoints")

    def test_no_checkpoint_is_lost_on_a_disk_that_is_full_20_times(self):
        self.fill_the_disk(20, seed=5)

    def test_long_no_checkpoint_is_lost_on_a_disk_that_is_full_1000_times(self):
        self.fill_the_disk(1000, seed=6)

    def test_a_run_killed_20_times_while_it_saves_always_has_a_whole_latest_checkpoint(self):
        self.kill_while_saving(20, seed=3)

    def test_long_a_run_killed_1000_times_while_it_saves_always_has_a_whole_latest_checkpoint(self):
        self.kill_while_saving(1000, seed=4)


if __name__ == "__main__":
    support.main()
