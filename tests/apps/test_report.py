"""dltrain report and watch: the page, and what a browser draws of it."""
import contextlib
import base64
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest

from support import PROGRAM, SMALL, STORAGE, USAGE, DltrainTest, main

HOSTILE = "</script><img src=x onerror=alert(1)>"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Pages(DltrainTest):
    def setUp(self):
        super().setUp()
        self.runs = self.folder / "runs"
        self.config = self.write("small.yaml", SMALL + 'experiment: {goal: "which rate is best"}\n')

    def train(self, name, *more):
        self.run_dltrain("train", self.config, "-q", "--output-dir", self.runs / name, "-s", "training.max_steps=8", "-s", "logging.logging_steps=1", *more)
        return self.runs / name

    def report(self, *arguments):
        return self.run_dltrain("report", *arguments).out

    def data(self, page):
        return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)[1])

    def in_browser(self, page):
        """The document after its scripts have run."""
        return subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,6000", "--virtual-time-budget=5000", f"--user-data-dir={self.folder}/browser",
                               "--dump-dom", page if isinstance(page, str) else page.as_uri()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120, text=True, check=True).stdout


class Report(Pages):
    def test_one_run_has_its_page_in_its_folder(self):
        run = self.train("one")
        said = self.report(run)
        page = run / "report.html"
        self.assertIn(f"{page}: 1 run, ", said)
        found = self.data(page)["runs"][0]
        self.assertEqual((found["status"], found["goal"], found["train"]["count"]), ("finished", "which rate is best", 8))
        self.assertEqual(found["train"]["columns"]["step"], list(range(1, 9)))
        self.assertTrue(found["verdict"].startswith("8 steps in "), found["verdict"])
        self.assertIn("--output-dir", found["attempts"][0]["command"])
        self.assertGreater(found["model"]["parameters"], 0)
        self.assertNotIn("src=", re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL))  # nothing is loaded
        self.report(run)  # again, over its own page
        self.run_dltrain("train", self.config, "-q", "--output-dir", run, "--overwrite")  # the page is a file of the run
        self.assertFalse(page.exists())

    def test_several_runs_are_compared_broken_ones_too(self):
        for rate in ("0.1", "0.01", "0.001"):
            self.train(f"rate-{rate}", "-s", f"optimizer.learning_rate={rate}")
        metrics = self.runs / "rate-0.1" / "metrics.jsonl"
        metrics.write_text(metrics.read_text()[:-40] + '\nrubbish\n{"step": 99, "loss": null}\n')
        (self.runs / "rate-0.01" / "summary.json").write_text('{"exit_code": 0,')
        (self.runs / "rate-0.001" / "classes.json").write_text('{"classes": [1], "confusion": 3}')
        page = self.folder / "study.html"
        self.assertIn(": 3 runs, ", self.report(self.runs, "-o", page, "--title", HOSTILE))
        found = self.data(page)
        self.assertEqual(found["differing"], ["optimizer.learning_rate"])
        runs = {run["name"]: run for run in found["runs"]}
        self.assertEqual(runs["rate-0.01"]["status"], "broken")
        self.assertIn("summary.json", runs["rate-0.01"]["problem"])
        self.assertIn("not finite in 1 logged step", runs["rate-0.1"]["verdict"])
        self.assertIsNone(runs["rate-0.001"]["classes"])
        self.assertNotIn(HOSTILE, page.read_text())
        self.assertEqual(found["title"], HOSTILE)
        # Settings of a damaged file do not count.
        (self.runs / "rate-0.1" / "config.yaml").unlink()
        config = self.runs / "rate-0.001" / "config.yaml"
        config.write_text(config.read_text()[:400])
        self.assertIn(", in place of an earlier report\n", self.report(self.runs, "-o", page))
        found = self.data(page)
        self.assertEqual((found["differing"], [run["status"] for run in found["runs"]]), ([], ["broken"] * 3))

    def test_the_trials_of_sweeps_are_in_the_order_of_their_metrics(self):
        config = self.write("sweep.yaml", SMALL + "sweep: {trials: 3, metric: eval_loss, parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}}}\n")
        for name, mode in (("a", "min"), ("b", "max")):
            self.run_dltrain("sweep", config, "--output-dir", self.folder / name, "--max-steps", 4, "-s", f"sweep.mode={mode}")
        page = self.folder / "page.html"
        self.report(self.folder / "a", self.folder / "b", "-o", page)
        found = self.data(page)
        self.assertEqual(found["title"], "a, b")
        names = [run["name"] for run in found["runs"]]
        self.assertEqual(sorted(names), [f"{name}/trial-000{i}" for name in "ab" for i in range(3)])
        losses = [run["figures"]["eval_loss"] for run in found["runs"]]
        self.assertEqual(losses, sorted(losses[:3]) + sorted(losses[3:], reverse=True))

    def test_many_steps_are_thinned_with_their_spikes(self):
        run = self.train("long")
        losses = [(step, 50 if step == 5001 else 1 + 1 / step) for step in range(1, 10001)]
        rows = [{"step": step, "loss": loss, "time": 1e9 + step} for step, loss in losses]
        rows += [{"step": step, "eval_loss": loss, "eval_samples": 10, "time": 1e9 + step} for step, loss in losses]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        page = self.folder / "page.html"
        for points, kept in ((400, range(100, 402)), (0, [10000])):
            self.report(run, "-o", page, "--points", points)
            found = self.data(page)["runs"][0]
            for part, key in (("train", "loss"), ("eval", "eval_loss")):
                self.assertEqual(found[part]["count"], 10000)
                self.assertIn(found[part]["kept"], kept)
                self.assertEqual(max(found[part]["columns"][key]), 50)
                self.assertEqual(found[part]["columns"]["step"][-1], 10000)

    def test_a_sentence_judges_the_length_of_the_training(self):
        run = self.train("judged")
        page = self.folder / "page.html"
        for losses, said in (([2, 1.5, 1, 1.1, 1.2, 1.3], "evaluation loss: overfits from step 300 on: 30 % above its minimum at the end"),
                             ([2, 1.8, 1.6, 1.4, 1.2, 1], "evaluation loss: still falling at the end: more steps would help"),
                             ([2, 1.9, 1.8, 1.7, 1.6, 1.5, 1, 1.01], "evaluation loss: lowest at step 700, not at the end"),
                             ([2, 1, 0.5, 0.5, 0.5, 0.5], "evaluation loss: saturated from step 300 on"), ([2, 1, 3, 1], None)):
            rows = [{"step": 100 * (i + 1), "eval_loss": loss, "eval_samples": 10} for i, loss in enumerate(losses)]
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.report(run, "-o", page)
            verdict = self.data(page)["runs"][0]["verdict"]
            self.assertEqual(verdict.split("; ")[-1] if "evaluation loss" in verdict else None, said)

    def test_damaged_files_end_no_report(self):
        run = self.train("damaged", "-s", "evaluation.predictions=4", "-s", "evaluation.eval_steps=4")
        files = [path for path in run.rglob("*.json*") if "checkpoints" not in path.parts] + [run / "config.yaml"]
        whole = {path: path.read_bytes() for path in files}
        page = self.folder / "page.html"
        for seed in range(25):
            draw = random.Random(seed)
            for path, content in whole.items():
                at = draw.randrange(len(content))
                path.write_bytes(draw.choice([content, content[:at], content[:at] + draw.choice([b"null", b"[[", b"-1", b"1e999", b"\xff"]) + content[at:],
                                              b"null", b'{"classes": [], "confusion": [[]]}', b'{"step": 1, "loss": "x"}\n[1]\n']))
            result = self.run_dltrain("report", run, "-o", page, code=None)
            self.assertIn(result.code, (0, STORAGE), f"seed {seed}: {result}")
            self.assertNotIn("internal error", result.err, f"seed {seed}")
            if result.code == 0:
                self.data(page)

    def test_what_is_not_there_or_not_ours_is_refused(self):
        self.refused(STORAGE, "report", self.folder / "nowhere", says="nowhere does not exist")
        (self.folder / "empty").mkdir()
        self.refused(STORAGE, "report", self.folder / "empty", says="empty has no runs")
        for name in ("a", "b"):
            self.train(name)
        (self.folder / "report.html").write_text("<p>mine</p>")
        self.refused(USAGE, "report", self.runs, says="report.html exists and is not a report; name another page with -o", cwd=self.folder)
        self.assertEqual((self.folder / "report.html").read_text(), "<p>mine</p>")
        (self.runs / "a" / "report.html").write_text("<p>mine</p>")
        self.refused(USAGE, "report", self.runs / "a", says="report.html exists and is not a report")
        self.refused(USAGE, "train", self.config, "-q", "--output-dir", self.runs / "a", "--overwrite", says="report.html was not written by dltrain")  # still the user's
        self.refused(USAGE, "report", self.runs, "-o", self.config, says="small.yaml exists and is not a report")

    def test_the_memory_of_the_step_is_a_timeline_and_a_profile_a_roofline(self):
        run = self.train("one")
        page = run / "report.html"
        self.report(run)
        found = self.data(page)["runs"][0]
        self.assertIsNone(found["roofline"])
        timeline = found["model"]["timeline"]
        self.assertEqual([phase["name"] for phase in timeline["phases"]], ["forward", "backward", "update"])
        self.assertEqual(len(timeline["at"]), len(timeline["bytes"]))
        self.assertEqual(max(timeline["bytes"]), timeline["peak"]["bytes"])
        self.assertEqual(sum(part["bytes"] for part in timeline["peak"]["largest"]), timeline["peak"]["bytes"])
        memory = found["model"]["memory"]
        self.assertIn("alignment", [part["what"] for part in memory])
        self.assertEqual(sum(part["bytes"] for part in memory), json.loads((run / "summary.json").read_text())["arena_bytes"])
        plan = self.run_dltrain("plan", self.config).out
        self.assertIn(f"at the peak, in {timeline['peak']['what']}", plan)
        self.run_dltrain("profile", run / "config.yaml", "--output-dir", run, "-q", "--steps", 2)
        self.report(run)
        kind, _, content = self.data(page)["runs"][0]["roofline"].partition(",")
        self.assertEqual(kind, "data:image/svg+xml;base64")
        self.assertEqual(base64.b64decode(content), (run / "roofline.svg").read_bytes())

    @unittest.skipUnless(BROWSER, "chromium is not installed: nothing opens the page")
    def test_a_browser_draws_it(self):
        for name in ("a", "b"):
            self.train(name, "-s", f"experiment.goal={json.dumps(HOSTILE + name)}", "-s", f"optimizer.learning_rate=0.{len(name)}1")
        self.run_dltrain("profile", self.runs / "a" / "config.yaml", "--output-dir", self.runs / "a", "-q", "--steps", 2)
        page = self.folder / "page.html"
        for folder, title in ((self.runs / "a", HOSTILE), (self.runs, HOSTILE)):
            self.report(folder, "-o", page, "--title", title)
            shown = self.in_browser(page)
            self.assertIn('data-ready="yes"', shown)
            self.assertNotIn("data-error", shown)
            self.assertNotIn("<img src=x", re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL))
            drawn = re.findall(r'<canvas [^>]*tabindex="0"[^>]*>', shown)
            self.assertGreater(len(drawn), 3)
            if folder != self.runs:
                self.assertRegex(shown, r'<canvas (?=[^>]*aria-label="Live memory over \d+ calls. Peak: )[^>]*width="\d{3,}"')
                self.assertIn('<img src="data:image/svg+xml;base64,', shown)
            for canvas in drawn:
                self.assertRegex(canvas, r'aria-label="[^"]+ by Step\. At the end: [^"]*\d')
                self.assertRegex(canvas, r'width="\d{3,}"')  # Chart.js has given it its size

    @unittest.skipUnless(BROWSER, "chromium is not installed: nothing opens the page")
    def test_a_browser_draws_the_results_of_a_sweep_over_its_settings(self):
        sweep = "sweep: {trials: 6, parameters: {optimizer.learning_rate: {log: [1e-4, 1e-1]}, optimizer.type: [adamw, sgd]}}\n"
        self.run_dltrain("sweep", self.write("sweep.yaml", SMALL + sweep), "--output-dir", self.runs)
        page = self.folder / "page.html"
        self.report(self.runs, "-o", page)
        shown = self.in_browser(page)
        self.assertNotIn("data-error", shown)
        self.assertIn("trial-0003", shown)
        for key in ("learning_rate", "type"):
            self.assertRegex(shown, rf'<canvas [^>]*aria-label="eval_loss of 6 runs by optimizer.{key}"[^>]*width="\d{{3,}}"|'
                                    rf'<canvas [^>]*width="\d{{3,}}"[^>]*aria-label="eval_loss of 6 runs by optimizer.{key}"')


class Watch(Pages):
    """dltrain watch: the page of a run over a socket."""

    def setUp(self):
        super().setUp()
        self.run_folder = self.train("one")
        self.server = subprocess.Popen([PROGRAM, "watch", self.run_folder, "--port", "0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        self.port = int(re.match(r"http://127\.0\.0\.1:(\d+)/ shows ", self.server.stdout.readline())[1])

    def connect(self):
        out = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self.addCleanup(out.close)
        return out

    def ask(self, request):
        """What is answered until the server closes the connection."""
        with self.connect() as connection:
            answer = b""
            try:
                connection.sendall(request)
                while part := connection.recv(1 << 16):
                    answer += part
            except (ConnectionResetError, BrokenPipeError):  # it has closed before it had read everything
                pass
        return answer

    def get(self, path, host="localhost:1"):
        return self.ask(f"GET {path} HTTP/1.1\r\nAccept: */*\r\nHost: {host}\r\n\r\n".encode())

    def test_it_serves_the_page_and_its_data_and_nothing_else(self):
        page = self.get("/")
        self.assertTrue(page.startswith(b"HTTP/1.1 200 OK\r\n"), page[:100])
        self.assertIn(b"connect-src 'self'", page)
        data = json.loads(self.get("/data.json", "127.0.0.1").split(b"\r\n\r\n", 1)[1])
        self.assertEqual((data["status"], data["train"]["count"]), ("finished", 8))
        self.assertNotIn("config", data)
        for path in ("/report.html", "/config.yaml", "/../one/config.yaml", "/?", "//", "/data.json?x=1", "*", "http://localhost/"):
            self.assertTrue(self.get(path).startswith(b"HTTP/1.1 404 "), path)
        for host in ("example.org", "localhost.example.org", "localhost:x", "127.0.0.1.", "", "[::1]", "localhost\r\nHost: localhost"):
            self.assertTrue(self.get("/", host).startswith(b"HTTP/1.1 404 "), host)
        for request in (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /\r\n\r\n", b"\r\n\r\n", b"\0\xff" * 100 + b"\r\n\r\n"):
            self.assertTrue(self.ask(request).startswith(b"HTTP/1.1 404 "), request)

    def test_hostile_requests_do_not_end_it(self):
        self.assertIn(self.ask(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1_000_000)[:12], (b"HTTP/1.1 404", b""))
        waiting = [self.connect() for _ in range(200)]
        for i, connection in enumerate(waiting):
            try:
                connection.sendall(b"GET / HT" if i % 2 else b"")
            except OSError:  # the oldest have been closed
                pass
        for _ in range(20):  # asks, and reads nothing of the answer
            connection = self.connect()
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        self.assertTrue(self.get("/data.json").startswith(b"HTTP/1.1 200 "))
        (self.run_folder / "metrics.jsonl").write_bytes(b"\xff{[" * 1000)
        (self.run_folder / "config.yaml").unlink()
        time.sleep(1.1)
        self.assertTrue(self.get("/data.json").startswith(b"HTTP/1.1 200 "))
        self.assertIsNone(self.server.poll())

    @unittest.skipUnless(BROWSER, "chromium is not installed: nothing opens the page")
    def test_the_page_follows_the_run(self):
        with open(self.run_folder / "metrics.jsonl", "a") as metrics:
            metrics.write(json.dumps({"step": 9, "time": 2e9, "loss": 0.4321, HOSTILE: 7}) + "\n")
        summary = self.run_folder / "summary.json"
        summary.write_text(json.dumps(json.loads(summary.read_text()) | {"loss": 0.5678}))
        for _ in range(10):  # the virtual time of the browser does not always wait for the server
            shown = self.in_browser(f"http://localhost:{self.port}/")
            if ' id="live"> · follows the run<' in shown:
                break
        self.assertNotIn("data-error", shown)
        self.assertIn(' id="live"> · follows the run<', shown)
        self.assertIn('<td class="number">0.5678</td>', shown)  # among the figures
        self.assertRegex(shown, r'aria-label="Loss by Step\. At the end: [^"]*0\.4321')
        self.assertNotIn("<img src=x", re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL))

    def test_an_interrupt_ends_it_and_frees_the_port(self):
        waiting = self.connect()
        self.server.send_signal(signal.SIGINT)
        self.assertEqual(self.server.wait(timeout=20), -signal.SIGINT)
        with contextlib.suppress(ConnectionResetError):  # a connection that was not accepted yet
            self.assertEqual(waiting.recv(1), b"")
        again = subprocess.Popen([PROGRAM, "watch", self.run_folder, "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(again.stdout.close)
        self.addCleanup(again.wait)
        self.addCleanup(again.kill)
        self.assertIn(f":{self.port}/ shows ", again.stdout.readline())

    def test_what_cannot_be_served_is_refused(self):
        self.refused(STORAGE, "watch", self.folder / "nowhere", says="nowhere is not a folder")
        self.refused(STORAGE, "watch", self.runs, says="runs is not the folder of a run")
        self.refused(USAGE, "watch", self.run_folder, "--port", self.port, says=f"port {self.port} on 127.0.0.1 is in use by another program; choose another port with --port\n")


if __name__ == "__main__":
    main()
