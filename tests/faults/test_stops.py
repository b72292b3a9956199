"""Signals at random times: a run that is told to stop saves and ends soon whatever it does, and goes on to the same bits."""
import json
import os
import pathlib
import random
import shutil
import signal
import time

from support import OK, SMALL, STOPPED, DltrainTest, checkpoints, main, metrics

# The same number of threads for every layout, or bits differ (docs/equality.md).
os.environ["OMP_NUM_THREADS"] = "1"

# Most of the time goes into evaluations, which decide about `best` and about early stopping.
EVALUATED = (SMALL.replace("samples: 40, seed: 1", "samples: 20000, seed: 1").replace("save_steps: 10", "save_steps: 25")
             .replace("max_grad_norm: 1.0", "max_grad_norm: 1.0, early_stopping: {patience: 6, min_delta: 0.05}")
             .replace("logging:", "evaluation: {eval_steps: 3, predictions: 3000}\nlogging:"))
# An evaluation, and a step, that take a minute.
LARGE = SMALL.replace("out_features: 24", "out_features: 2000")
LONG_EVALUATION = (LARGE.replace("samples: 40, seed: 1", "samples: 1000000, seed: 1")
                   .replace("global_batch_size: 16", "global_batch_size: 16, micro_batch_size: 1")
                   .replace("logging:", "evaluation: {eval_steps: 2}\nlogging:"))
LONG_STEP = (LARGE.replace("samples: 100", "samples: 1000000").replace("save_steps: 10", "save_steps: 1000")
             .replace("global_batch_size: 16", "global_batch_size: 1000000, micro_batch_size: 2"))
SAMPLED = """
name: sampled
model: {type: gpt2, num_layers: 4, hidden_size: 64, num_heads: 2, dropout: 0.0, max_positions: 20000}
data: {type: text, path: FOLDER/text.txt, tokenizer: {type: char}, sequence_length: 16}
optimizer: {type: adamw, learning_rate: 1.0e-3}
training: {global_batch_size: 4, max_steps: 4}
generation: {sample_steps: 2, prompts: [the], max_tokens: 19000}
logging: {logging_steps: 1}
"""
# Seconds from the signal to the end, with room for a busy machine; clusters give 30.
SOON = 10


def trajectory(run):
    exact = ("step", "loss", "grad_norm", "eval_loss", "eval_accuracy", "best", "eval_samples")
    return [{key: line[key] for key in exact if key in line} for line in metrics(run)]


class Stops(DltrainTest):
    def assert_as_undisturbed(self, run, whole):
        self.assertEqual(trajectory(run), trajectory(whole))
        self.assert_same_state(run, whole)
        for link in ("best", "latest"):
            self.assertEqual(os.readlink(run / "checkpoints" / link), os.readlink(whole / "checkpoints" / link))
        for file in sorted((whole / "predictions").iterdir()):
            self.assert_same_file(file, run / "predictions" / file.name)

    def signal_at_random_times(self, times, seed, *arguments):
        """Signals a run `times` times, at any moment of its start, its steps, its evaluations and its end, and resumes it."""
        print(f"seed {seed}", flush=True)
        dice = random.Random(seed)
        path, whole, run = self.small(EVALUATED), self.folder / "whole", self.folder / "run"
        begin = time.monotonic()
        self.run_dltrain(path, "-q", "--output-dir", whole, *arguments)
        duration = time.monotonic() - begin
        stops, slowest = 0, 0
        while stops < times:
            process = self.start(path, "-q", "--output-dir", run, "--resume", "auto", *arguments)
            time.sleep(dice.uniform(0, duration))
            sent = time.monotonic()
            if process.poll() is None:
                process.send_signal(dice.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
            result = self.end(process)
            took = time.monotonic() - sent
            # Before main() a process dies of the signal.
            self.assertIn(result.code, (OK, STOPPED, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP), str(result))
            if result.code == OK:
                self.assert_as_undisturbed(run, whole)
                shutil.rmtree(run)
            else:
                stops, slowest = stops + 1, max(slowest, took)
                self.assertLess(took, SOON, str(result))
        self.run_dltrain(path, "-q", "--output-dir", run, "--resume", "auto", *arguments)
        self.assert_as_undisturbed(run, whole)
        print(f"{stops} signals: the slowest end took {slowest:.2f} s")

    def test_signals_at_6_random_times_cost_nothing_but_time(self):
        self.signal_at_random_times(6, time.time_ns())

    def test_signals_at_3_random_times_cost_two_ranks_nothing_but_time(self):
        self.signal_at_random_times(3, time.time_ns(), "--nproc-per-node", 2)

    def test_long_signals_at_200_random_times_cost_nothing_but_time(self):
        self.signal_at_random_times(200, time.time_ns())

    def test_long_signals_at_50_random_times_cost_two_ranks_nothing_but_time(self):
        self.signal_at_random_times(50, time.time_ns(), "--nproc-per-node", 2)

    def stop_soon(self, text, reached, *arguments):
        """Signals a run once `reached` holds; the checkpoints that it has then."""
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        process = self.start(self.small(text), "-q", "--output-dir", run, *arguments)
        self.wait_for(lambda: process.poll() is not None or reached(run), "the place to stop at", seconds=120)
        time.sleep(0.3)
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        self.assertLess(time.monotonic() - sent, SOON, str(result))
        return run

    @staticmethod
    def logged(count):
        return lambda run: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") >= count

    def test_a_stop_does_not_wait_for_an_evaluation(self):
        for arguments in ((), ("--nproc-per-node", 2)):
            run = self.stop_soon(LONG_EVALUATION, self.logged(2), *arguments)
            self.assertEqual(checkpoints(run), ["step-000002"])
            self.assertTrue(json.loads((run / "checkpoints" / "latest" / "state.json").read_text())["evaluation_due"])
            self.assertEqual([line["step"] for line in metrics(run)], [1, 2])

    def test_a_stop_does_not_wait_for_the_micro_batches_of_a_step(self):
        for arguments in ((), ("--nproc-per-node", 2)):
            run = self.stop_soon(LONG_STEP, lambda run: (run / "metrics.jsonl").exists(), *arguments)
            # Nothing was learnt: the next call begins again.
            self.assertEqual(checkpoints(run), [])

    def test_signals_interrupt_no_thread_that_computes(self):
        """Products of oneDNN before 3.11.2 use the stack pointer as an ordinary register: a handler there damages the heap."""
        run = self.folder / "run"
        for arguments in ((), ("--nproc-per-node", 2)):
            shutil.rmtree(run, ignore_errors=True)
            process = self.start(self.small(LONG_STEP), "-q", "--output-dir", run, *arguments, env={"OMP_NUM_THREADS": "2"})
            self.wait_for(lambda: process.poll() is not None or (run / "metrics.jsonl").exists(), "the first step")
            time.sleep(0.1)
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in children if arguments else [process.pid]:
                threads = {}
                for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                    try:
                        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
                    except OSError:  # the thread has ended
                        continue
                    blocked = int(status["SigBlk"], 16)
                    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
                    threads.setdefault(all(blocked >> number - 1 & 1 for number in stops), []).append(status["Name"])
                self.assertEqual(threads[False], ["signals"])
                self.assertGreaterEqual(len(threads[True]), 2, threads)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.end(process).code, STOPPED)

    def test_a_signal_to_every_process_of_a_job_saves(self):
        """Slurm and systemd signal all processes, so ranks get the signal a second time from their launcher."""
        run = self.folder / "run"
        slow = LARGE.replace("samples: 100", "samples: 20000").replace("global_batch_size: 16, max_steps: 40", "global_batch_size: 20000, max_steps: 100000")
        process = self.start(self.small(slow.replace("save_steps: 10", "save_steps: 50000")), "-q", "--output-dir", run, "--nproc-per-node", 2)
        self.wait_for(lambda: process.poll() is not None or self.logged(3)(run), "three steps")
        ranks = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self.assertEqual(len(ranks), 2)
        for pid in map(int, ranks):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.01)  # within the step
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        self.assertEqual(checkpoints(run), [f"step-{metrics(run)[-1]['step']:06}"], str(result))

    def test_a_stop_does_not_wait_for_samples(self):
        """The text that a run generates takes a minute; the next call begins with it and comes to the same samples."""
        self.write("text.txt", "the quick brown fox jumps over the lazy dog. " * 400)
        text = SAMPLED.replace("FOLDER", str(self.folder))
        run = self.stop_soon(text, self.logged(2))
        self.assertEqual(checkpoints(run), ["step-000002"])
        self.assertTrue(json.loads((run / "checkpoints" / "latest" / "state.json").read_text())["evaluation_due"])
        self.assertEqual((run / "samples.jsonl").read_text(), "")
        short = ("-q", "--output-dir", run, "--resume", "auto", "-s", "generation.max_tokens=8")
        self.run_dltrain(self.small(text), *short)
        whole = self.folder / "whole"
        self.run_dltrain(self.small(text), "-q", "--output-dir", whole, "-s", "generation.max_tokens=8")
        self.assertEqual(trajectory(run), trajectory(whole))
        texts = [[(line["step"], line["text"]) for line in map(json.loads, (at / "samples.jsonl").read_text().splitlines())] for at in (run, whole)]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual([step for step, _ in texts[0]], [2, 4])
        self.assert_same_state(run, whole)

    def test_a_stop_does_not_wait_for_data_to_be_opened(self):
        rows = self.write("big.csv", "1,2,3,0\n4,5,6,1\n" * 2_000_000)
        text = SMALL.replace("{type: synthetic, shape: [12], classes: 4, samples: 100, shuffle: true}",
                             f"{{type: csv, path: {rows}, target: last, shuffle: true}}")
        text = text[:text.index("  eval:")] + text[text.index("optimizer:"):]
        process = self.start(self.small(text), "-q", "--output-dir", self.folder / "run")

        def is_open():
            # A descriptor may be closed after it was listed.
            links = (pathlib.Path(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd"))
            return any("big.csv" in str(link.resolve()) for link in links)

        self.wait_for(lambda: process.poll() is not None or is_open(), "the data to be opened")
        self.assertIsNone(process.poll(), "the run ended too early")
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        self.assertIn("stopped by signal 15 (SIGTERM) before the first step", result.err)
        self.assertLess(time.monotonic() - sent, SOON, str(result))
        self.assertFalse((self.folder / "run" / "metrics.jsonl").exists(), "the run had begun")

    def test_a_stop_at_the_last_step_leaves_its_evaluation_to_the_next_start(self):
        text = LONG_EVALUATION.replace("eval_steps: 2", "eval_steps: 100").replace("max_steps: 40", "max_steps: 3")
        run = self.stop_soon(text, self.logged(3))
        self.assertEqual(checkpoints(run), ["step-000003"])
        again = ("-s", "evaluation.samples=100")
        self.run_dltrain(self.small(text), "-q", "--output-dir", run, "--resume", "auto", *again)
        self.run_dltrain(self.small(text), "-q", "--output-dir", self.folder / "whole", *again)
        self.assertEqual(trajectory(run), trajectory(self.folder / "whole"))
        self.assertEqual(json.loads((run / "summary.json").read_text())["exit_code"], OK)
        self.assertNotIn("evaluation_due", json.loads((run / "checkpoints" / "latest" / "state.json").read_text()))


if __name__ == "__main__":
    main()
