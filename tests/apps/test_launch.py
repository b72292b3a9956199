"""dltrain launch: torchrun's flags, nodes, restarts, ranks that are lost, stopped or unlike."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

from support import OK, PROGRAM, RANK, SMALL, SOURCES, STOPPED, STORAGE, USAGE, DltrainTest, checkpoints, main

# Long enough that something can happen to it.
ENDLESS = ("-s", "training.max_steps=1000000", "-s", "checkpoint.save_steps=50", "-s", "logging.logging_steps=1000")


# The same number of threads for every layout, or bits differ (docs/equality.md).
os.environ["OMP_NUM_THREADS"] = "1"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ranks_of(launcher):
    """{rank: process number} of the ranks that a launcher has started."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(status[1]) != launcher.pid or status[0] == "Z":
                continue
            variables = dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)
        except (OSError, IndexError):
            continue
        if "RANK" in variables:
            found[int(variables["RANK"])] = int(entry.name)
    return found


def catches(process, number):
    """Whether a process does more about a signal than to die of it."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigBlk", "SigCgt"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


class CuttingProxy:
    """Passes one connection on to a port, and cuts it after so many replies."""

    def __init__(self, port, replies):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(20)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, args=(port, replies), daemon=True).start()

    def serve(self, port, replies):
        try:
            with self.listener, self.listener.accept()[0] as client, socket.create_connection(("127.0.0.1", port)) as store:
                for connection in (client, store):
                    connection.settimeout(20)
                for _ in range(replies):
                    store.sendall(client.recv(65536))
                    client.sendall(store.recv(65536))
                client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Launch(DltrainTest):
    def launch(self, flags, *arguments, **popen):
        return self.run_dltrain("launch", *flags, "--", self.small(), "-q", "--output-dir", self.folder / "run",
                                *arguments, **popen)

    def one(self, *arguments):
        run = self.folder / "one"
        self.run_dltrain(self.small(), "-q", "--output-dir", run, "--nproc-per-node", 4, *arguments)
        return run

    def wait_for_a_step(self, process):
        """Waits until the run of `folder / run` has logged a step."""
        path = self.folder / "run" / "metrics.jsonl"
        self.wait_for(lambda: process.poll() is not None or (path.exists() and len(path.read_text().splitlines()) >= 1),
                      "the first step")

    def test_launched_ranks_train_as_the_short_way(self):
        one = self.one()
        for flags in (("--nproc-per-node", 4), ("--standalone", "--nproc_per_node=4", "--nnodes=1:1"),
                      ("--nproc-per-node=4", "--rdzv_backend", "c10d", "--rdzv-id", "x", "--monitor_interval", "0.05")):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.launch(flags)
            self.assert_same_state(one, self.folder / "run")

    def test_what_ranks_cannot_be_given(self):
        small = self.small()
        for arguments, sentence in ((("launch", "--nproc-per-node", 2, small, "--max-restarts", 2),
                                     "--max-restarts: flags of the launcher stand before the configuration"),
                                    (("launch", "--nproc", 2, small), "not expected: --nproc; did you mean --nproc-per-node?"),
                                    (("launch", "--nproc-per-node", 2, "/dev/null"), "/dev/null: every rank reads the configuration")):
            result = self.run_dltrain(*arguments, code=USAGE)
            self.assertIn("dltrain: error: ", result.err)
            self.assertIn(sentence, result.err)
            self.assertNotIn("rank 0", result.err)

    def test_one_node_says_what_it_does_not_use(self):
        result = self.run_dltrain("launch", "--master-addr", "n01", "--rdzv-conf", "join_timeout=5", self.small(), "-q",
                                  "--output-dir", self.folder / "run", "--max-steps", 1)
        self.assertIn("dltrain: --master-addr, --rdzv-conf: not used, there is one node\n", result.err)
        for flags, names in ((("--rdzv-endpoint", "nosuchhost"), "the host of --rdzv-endpoint"),
                             (("--standalone", "--rdzv-conf", "is_host=1,read_timeout=5"), "--rdzv-conf"),
                             (("--standalone", "--master-port", 1234), "--master-port")):
            result = self.run_dltrain("launch", *flags, self.small(), "-q", "--output-dir", self.folder / "run", "--overwrite",
                                      "--max-steps", 1)
            self.assertIn(f"dltrain: {names}: not used, there is one node\n", result.err)

    def test_two_launchers_are_two_nodes(self):
        one = self.one()
        configuration = self.small()
        port = free_port()
        for numbered in (True, False):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            nodes = []
            for node in (1, 0):
                place = ("--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node) if numbered else (
                    "--rdzv-endpoint", f"127.0.0.1:{port}")
                nodes.append(self.start("launch", "--nnodes", 2, "--nproc-per-node", 1 + 2 * node, *place, configuration, "-q",
                                        "--output-dir", self.folder / "run", env={"DLTRAIN_STORE_SECRET": "sesame"}))
            for node in nodes:
                result = self.end(node)
                self.assertEqual(result.code, OK, str(result))
            self.assert_same_state(one, self.folder / "run")

    def namespaces(self):
        """Two network namespaces joined by a cable, with the addresses 10.77.0.1 and 10.77.0.2."""
        names = [f"dltrain-{os.getpid()}-{i}" for i in (1, 2)]

        def ip(*arguments):
            if subprocess.run(["ip", *arguments], capture_output=True).returncode != 0:
                self.skipTest(f"no right to `ip {' '.join(arguments)}`")

        if not shutil.which("ip"):
            self.skipTest("no program `ip`")
        for name in names:
            ip("netns", "add", name)
            self.addCleanup(subprocess.run, ["ip", "netns", "delete", name], capture_output=True)
        cable = [f"dlt{os.getpid() % 100000}{i}" for i in (1, 2)]
        ip("link", "add", cable[0], "netns", names[0], "type", "veth", "peer", "name", cable[1], "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", cable[i])
            ip("-n", name, "link", "set", cable[i], "up")
            ip("-n", name, "link", "set", "lo", "up")
        return names

    def test_nodes_with_networks_of_their_own_reach_each_other(self):
        names = self.namespaces()
        one = self.one()
        configuration = self.small()
        nodes = []
        for name in reversed(names):
            nodes.append(self.begin(
                ["ip", "netns", "exec", name, PROGRAM, "launch", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint",
                 "10.77.0.1:29400", str(configuration), "-q", "--output-dir", str(self.folder / "run")],
                env={"DLTRAIN_STORE_SECRET": "sesame"}))
        for node in nodes:
            result = self.end(node)
            self.assertEqual(result.code, OK, str(result))
        # Which node came first does not matter: rank 0 is at the endpoint.
        self.assert_same_state(one, self.folder / "run")

    def test_a_leader_that_is_lost_while_the_nodes_meet_is_one_sentence(self):
        """The second node talks through a proxy that ends the connection at every place in the first exchanges."""
        configuration = self.small()
        for replies in range(8):
            port = free_port()
            proxy = CuttingProxy(port, replies)
            common = ("launch", "--nnodes", 2, "--master-addr", "127.0.0.1", "--rdzv-conf", "join_timeout=20")
            leader = self.start(*common, "--master-port", port, "--node-rank", 0, configuration, "--output-dir", self.folder / "run")
            second = self.end(self.start(*common, "--master-port", proxy.port, "--node-rank", 1, configuration, "--output-dir",
                                         self.folder / "run"))
            leader.kill()
            self.assertEqual(second.code, RANK, f"after {replies} replies: {second}")
            self.assertEqual(len(second.err.splitlines()), 1, f"after {replies} replies: {second}")

    def test_a_launcher_without_the_secret_is_refused(self):
        port = free_port()
        common = ("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "join_timeout=3")
        configuration = self.small()
        first = self.start(*common, configuration, "--output-dir", self.folder / "run", env={"DLTRAIN_STORE_SECRET": "sesame"})
        time.sleep(0.3)
        self.refused(RANK, *common, configuration, "--output-dir", self.folder / "run", says="refused this launcher's secret")
        result = self.end(first)
        self.assertEqual(result.code, RANK, str(result))
        self.assertIn(f"only 1 of 2 nodes came to 127.0.0.1:{port} within 3 s", result.err)
        self.assertIn(f"a launcher or rank at 127.0.0.1 came to 127.0.0.1:{port} with another secret", result.err)
        self.assertEqual(len(result.err.splitlines()), 2, str(result))

    def test_a_port_in_use_is_named(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            self.refused(RANK, "launch", "--master-port", port, self.small(), "--output-dir", self.folder / "run",
                         says=f"port {port} on 127.0.0.1 is in use")
            self.refused(RANK, "launch", "--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port", port,
                         self.small(), "--output-dir", self.folder / "run", says=f"port {port} on 127.0.0.1 is in use")

    def test_flags_that_make_no_sense_are_refused(self):
        path = self.small()
        for flags, says in (
            (("--start-method", "spawn"), "--start-method: ranks are started by fork and exec"),
            (("--no_python",), "--no-python: the ranks are dltrain itself"),
            (("--numa_binding=socket",), "--numa-binding socket: expected exclusive, node or none"),
            (("--rdzv-backend", "etcd"), "static and c10d are possible"),
            (("--nnodes", "2"), "several nodes need a place to meet"),
            (("--nnodes", "2", "--master-addr", "x"), "needs --node-rank on each of them"),
            (("--nnodes", "1:2", "--rdzv-endpoint", "x", "--node-rank", "0"), "leave it out"),
            (("--nnodes", "2", "--rdzv-endpoint", "x", "--node-rank", "2"), "--node-rank 2 of 2 nodes"),
            (("--standalone", "--nnodes", "2"), "--standalone is one node"),
            (("--rdzv-endpoint", "x:1", "--master-addr", "y"), "say the same; give one"),
            (("--nnodes", "two"), "expected a number of nodes"),
            (("--nproc-per-node", "some"), "expected a number from 1 to"),
            (("--log-dir", "x", "--redirects", "9"), "--redirects 9: expected 0 (none)"),
            (("--rdzv-conf", "join_timeout"), "expected join_timeout=SECONDS"),
            (("--rdzv-conf", "close_timeout=3"), "--rdzv-conf close_timeout: the nodes wait 3 s"),
            (("--nnodes", "2", "--master-addr", "x", "--node-rank", "0", "--master-port", "0"),
             "several nodes need a port that all of them know, not 0"),
            (("--nnodes", "2", "--master-addr", "x", "--node-rank", "1", "--rdzv-conf", "is_host=1"), "leave is_host out"),
        ):
            self.refused(USAGE, "launch", *flags, path, says=says)
        self.refused(USAGE, "launch", "--nproc-per-node", 2, says="nothing to launch")
        self.refused(USAGE, "launch", "--nproc-per-node", 2, "plan", path, says="starts `dltrain train` only, not `dltrain plan`")
        self.refused(USAGE, "launch", path, "--nproc-per-node", 2, says="stands before the arguments of the ranks")
        self.assertIn("--max-restarts", self.run_dltrain("launch", "--help").out)

    def test_mistakes_are_told_once_before_ranks_start(self):
        result = self.refused(USAGE, "launch", "--nproc-per-node", 3, self.small(), "--output-dir", self.folder / "run",
                              says="a global batch of 16 cannot be shared evenly by 3 ranks; 15 and 18 could be, and 16 could be by 2 ranks")
        self.assertEqual(result.err.count("cannot be shared"), 1)
        self.refused(USAGE, "launch", "--nproc-per-node", 2, self.small(), "-s", "training.max_step=3",
                     says="did you mean 'max_steps'?")
        result = self.refused(USAGE, "launch", "--nproc-per-node", 4, self.small(), "-s", "parallelism.zero_stage=3", "-s",
                              "parallelism.zero_shard_size=3", says="4 ranks do not come out even in groups of 3")
        self.assertNotIn("rank 0 (process", result.err)
        self.assertFalse((self.folder / "run").exists())

    def test_ranks_with_different_configurations_are_refused(self):
        port = free_port()
        common = ("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", self.small(), "--output-dir",
                  self.folder / "run")
        nodes = [self.start(*common, "-s", f"optimizer.learning_rate={rate}") for rate in ("0.01", "0.02")]
        results = [self.end(node) for node in nodes]
        self.assertEqual([r.code for r in results], [USAGE, USAGE], "\n".join(map(str, results)))
        text = results[0].err + results[1].err
        self.assertRegex(text, r"different configurations: optimizer.learning_rate is 0.0[12] on rank 0 and 0.0[12] on rank 1")
        self.assertFalse((self.folder / "run" / "metrics.jsonl").exists())

    def test_nodes_that_do_not_share_the_run_folder_are_told(self):
        configuration = self.small()
        places = [self.folder / "here", self.folder / "there"]
        for place in places:
            place.mkdir()
        self.run_dltrain(configuration, "-q", "--output-dir", "run", "-s", "training.max_steps=2", cwd=places[0])
        nodes = [self.start("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", configuration, "--output-dir", "run",
                            "--resume", "auto", "-s", "training.max_steps=4", cwd=place)
                 for port in (free_port(),) for place in places]
        results = [self.end(node) for node in nodes]
        self.assertEqual([r.code for r in results], [USAGE, USAGE], "\n".join(map(str, results)))
        self.assertIn("none and step 2", results[0].err + results[1].err)
        self.assertFalse((places[1] / "run" / "metrics.jsonl").exists())

    def test_output_of_ranks_goes_to_files(self):
        self.launch(("--nproc-per-node", 2, "--log-dir", self.folder / "logs", "--redirects", "1:3", "--tee", "0:3", "--rdzv-id",
                     "job"), "-s", "training.max_steps=2")
        run, = (self.folder / "logs").iterdir()
        self.assertTrue(run.name.startswith("job_"), run)
        logs = run / "attempt_0"
        self.assertEqual(sorted(str(p.relative_to(logs)) for p in logs.rglob("*.log")),
                         ["0/stderr.log", "0/stdout.log", "1/stderr.log", "1/stdout.log"])

    def test_files_of_output_as_torchrun_has_them(self):
        """--tee without --log-dir goes to a temporary folder, which is told; --tee 0 means none."""
        (self.folder / "tmp").mkdir()
        result = self.launch(("--nproc-per-node", 2, "-t", 3), "-s", "training.max_steps=2", env={"TMPDIR": str(self.folder / "tmp")})
        run, = (self.folder / "tmp").glob("dltrain_none_*")
        self.assertIn(f"dltrain: output of the ranks goes to {run}\n", result.err)
        self.assertTrue((run / "attempt_0" / "1" / "stdout.log").exists())
        for flags in (("--tee", 0), ("--redirects", 0), ("--tee=0", "--redirects=0")):
            result = self.launch(("--nproc-per-node", 2, "--log-dir", self.folder / "logs", *flags), "--overwrite", "-s",
                                 "training.max_steps=2")
            self.assertFalse((self.folder / "logs").exists())
            self.assertNotIn("output of the ranks", result.err)
        self.refused(STORAGE, "launch", "--nproc-per-node", 2, "--tee", 3, self.small(), "--output-dir", self.folder / "run",
                     "--overwrite", env={"TMPDIR": str(self.folder / "nowhere")}, says="--log-dir names another one")
        self.launch(("--nproc-per-node", 2, "--master-port", 0), "--overwrite", "-s", "training.max_steps=2")

    def test_the_short_way_counts_ranks_too(self):
        cores = len(os.sched_getaffinity(0))
        for name in ("cpu", "auto"):
            self.run_dltrain(self.small(SMALL.replace("16", str(4 * cores))), "-q", "--nproc_per_node", name, "--output-dir",
                             self.folder / name, "-s", "training.max_steps=2", env={"CUDA_VISIBLE_DEVICES": ""})
        for word in ("some", "0", "5000"):
            self.refused(USAGE, self.small(), "--nproc-per-node", word,
                         says=f"--nproc-per-node {word}: expected a number from 1 to 4096, auto, gpu or cpu")

    def test_a_launcher_that_mpirun_has_started_is_no_rank(self):
        """One launcher a node, started by mpirun or srun: what they say of it is not about its ranks."""
        around = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                  "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        self.launch(("--nproc-per-node", 4), env=around)
        self.assert_same_state(self.one(), self.folder / "run")
        self.refused(USAGE, self.small(), "--nproc-per-node", 2, env=dict(around, MASTER_ADDR="127.0.0.1"),
                     says="this process is a rank already, started by mpirun (Open MPI)")

    def test_a_stopped_rank_is_named_in_time(self):
        for victim in (0, 2):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start("launch", "--nproc-per-node", 3, "--", self.small(SMALL.replace("16", "18")), "-q", "--output-dir",
                                 self.folder / "run", *ENDLESS, "-s", "parallelism.timeout=1")
            self.wait_for_a_step(process)
            time.sleep(0.6)  # they tell where they are four times a second
            ranks = ranks_of(process)
            os.kill(ranks[victim], signal.SIGSTOP)
            begin = time.monotonic()
            result = self.end(process)
            self.assertLess(time.monotonic() - begin, 3, str(result))
            self.assertEqual(result.code, RANK, str(result))
            name = rf"rank {victim} \(process {ranks[victim]} on [^ )]+\) has given no sign of life for 1\.\d s; it was last seen at step"
            self.assertRegex(result.err, "dltrain: " + name)
            self.assertEqual(len(result.err.splitlines()), 1, str(result))  # the launcher tells it for all
            for pid in ranks.values():
                self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_ranks_that_lose_the_store_say_so(self):
        """Their launcher stands still, which only they can tell; when it goes on it tells why."""
        process = self.start("launch", "--nproc-per-node", 2, "--", self.small(), "-q", "--output-dir", self.folder / "run",
                             *ENDLESS, "-s", "parallelism.timeout=1")
        self.wait_for_a_step(process)
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        result = self.end(process)
        self.assertEqual(result.code, RANK, str(result))
        self.assertRegex(result.err, r"dltrain: error: rank [01] \(process \d+ on [^ )]+\) lost touch with the run: ")
        self.assertRegex(result.err, r"\ndltrain: the launcher on \S+ \(process \d+\) stood still for [34]\.\d s")

    def test_a_lost_rank_is_told_once(self):
        """Killed at any time, early and late: the launcher's sentence alone, with the step where there was one."""
        for delay in (0, 0.05, 0.1, 0.15, 0.3, None):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start("launch", "--nproc-per-node", 3, "--", self.small(SMALL.replace("16", "18")), "-q", "--output-dir",
                                 self.folder / "run", *ENDLESS)
            self.wait_for(lambda: len(ranks_of(process)) == 3, "the ranks")
            if delay is None:
                self.wait_for_a_step(process)
                time.sleep(0.6)
            else:
                time.sleep(delay)
            pid = ranks_of(process)[1]
            os.kill(pid, signal.SIGKILL)
            result = self.end(process)
            self.assertEqual(result.code, RANK, str(result))
            where = r" at step \d+, (in|after) \w+ .*" if delay is None else ""
            self.assertRegex(result.err, rf"^dltrain: rank 1 \(process {pid}\) was killed by signal 9 \(SIGKILL; [^)]*\){where}")
            self.assertEqual(len(result.err.splitlines()), 1, str(result))

    def ranks_of_torchrun(self, count, *arguments, own=lambda rank: ()):
        """Ranks as torchrun starts them; `own`: arguments of one rank."""
        port, configuration = str(free_port()), self.small(SMALL.replace("16", "18"))
        return [self.start(configuration, "-q", "--output-dir", self.folder / "run", *arguments, *own(rank),
                           env={"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
                                "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                for rank in range(count)]

    def test_ranks_of_other_launchers_end_with_the_code_of_the_mistake(self):
        results = [self.end(rank) for rank in self.ranks_of_torchrun(
            2, own=lambda rank: ("-s", f"optimizer.learning_rate=0.0{rank + 1}"))]
        self.assertEqual([r.code for r in results], [USAGE, USAGE], "\n".join(map(str, results)))
        self.assertEqual(results[0].err, "")
        self.assertTrue(results[1].err.startswith("[rank 1] dltrain: error: the ranks were started with different"), results[1])

    def test_ranks_of_other_launchers_stop_together(self):
        """Rank 0, which serves the store, is told to stop a moment before the others, at any time."""
        for delay in (0, 0.02, 0.05, 0.1, 0.2, 0.5):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            ranks = self.ranks_of_torchrun(3, *ENDLESS)
            for rank in ranks:
                self.wait_for(lambda: catches(rank, signal.SIGTERM), "main()")
            time.sleep(delay)
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            results = [self.end(rank) for rank in ranks]
            self.assertEqual([r.code for r in results], 3 * [STOPPED], f"after {delay} s\n" + "\n".join(map(str, results)))

    def test_all_ranks_begin_from_the_checkpoint_that_rank_0_finds(self):
        """Else a run that writes checkpoints meanwhile, or nodes that see different ones, give ranks different weights."""
        configuration = self.small()
        places = [self.folder / "here", self.folder / "there"]
        for place in places:
            place.mkdir()
        self.run_dltrain(configuration, "-q", "--output-dir", "old", "-s", "training.max_steps=20", cwd=places[0])
        shutil.copytree(places[0] / "old", places[1] / "old", symlinks=True)
        shutil.rmtree(places[1] / "old" / "checkpoints" / "step-000020")
        port = free_port()
        nodes = [self.start("launch", "--nnodes", 2, "--node-rank", i, "--master-addr", "127.0.0.1", "--master-port", port,
                            configuration, "-q", "--output-dir", self.folder / "run", "-s",
                            "model.init_from=/proc/self/cwd/old", cwd=places[i])
                 for i in (0, 1)]
        results = [self.end(node) for node in nodes]
        self.assertEqual([r.code for r in results], [STORAGE, STORAGE], "\n".join(map(str, results)))
        self.assertIn("step-000020", results[1].err)

    def test_ranks_of_other_launchers_say_themselves_who_was_lost(self):
        ranks = self.ranks_of_torchrun(3, *ENDLESS)
        self.wait_for_a_step(ranks[0])
        ranks[1].kill()
        for rank, mark in ((0, ""), (2, r"\[rank 2\] ")):
            result = self.end(ranks[rank])
            self.assertEqual(result.code, RANK, str(result))
            self.assertRegex(result.err, rf"^{mark}dltrain: error: rank 1 \(process {ranks[1].pid} on [^ )]+\) was lost ")
            self.assertEqual(len(result.err.splitlines()), 1, str(result))

    def test_preemption_ends_all_with_75_and_no_restart(self):
        process = self.start("launch", "--nproc-per-node", 2, "--max-restarts", 3, self.small(), "-q", "--output-dir",
                             self.folder / "run", *ENDLESS)
        self.wait_for_a_step(process)
        process.send_signal(signal.SIGTERM)
        result = self.end(process)
        self.assertEqual(result.code, STOPPED, str(result))
        self.assertNotIn("restart", result.err)
        saved = int(checkpoints(self.folder / "run")[-1][5:])
        self.launch(("--nproc-per-node", 2), "--resume", "auto", *ENDLESS, "-s", f"training.max_steps={saved + 3}")
        self.assertEqual(checkpoints(self.folder / "run")[-1], f"step-{saved + 3:06}")

    def test_preemption_at_any_time_is_code_75(self):
        """From the first moments of the launcher over ranks that start to the first steps."""
        for delay in (0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5):
            process = self.start("launch", "--nproc-per-node", 3, self.small(SMALL.replace("16", "18")), "-q", "--output-dir",
                                 self.folder / "run", "--overwrite", *ENDLESS)
            # Before its main() a process is the kernel's and the linker's.
            self.wait_for(lambda: catches(process, signal.SIGTERM), "main()")
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
            result = self.end(process)
            self.assertEqual(result.code, STOPPED, f"after {delay} s: {result}")
            self.assertNotIn("lost", result.err)
            # Before there is a launcher that has ranks nothing is told, and then once, by it or by rank 0.
            self.assertEqual(len([line for line in result.err.splitlines() if "stopped" in line]),
                             0 if result.err == "" and delay < 0.05 else 1, f"after {delay} s: {result}")

    def test_a_stop_before_the_first_step_is_told_on_all_nodes(self):
        """Only one node is told to stop, while the other one's rank stands still."""
        port = free_port()
        nodes = [self.start("launch", "--nnodes", 2, "--node-rank", i, "--master-addr", "127.0.0.1", "--master-port", port,
                            self.small(), "-q", "--output-dir", self.folder / "run", *ENDLESS) for i in (0, 1)]
        self.wait_for(lambda: ranks_of(nodes[0]), "rank 0")
        rank = ranks_of(nodes[0])[0]
        os.kill(rank, signal.SIGSTOP)
        self.wait_for(lambda: ranks_of(nodes[1]), "rank 1")
        time.sleep(0.3)
        nodes[1].send_signal(signal.SIGINT)
        time.sleep(0.3)
        os.kill(rank, signal.SIGCONT)
        for node in nodes:
            result = self.end(node)
            self.assertEqual(result.code, STOPPED, str(result))
            self.assertEqual(result.err, "dltrain: stopped by signal 2 (SIGINT) before the first step\n")

    def test_ranks_of_other_launchers_that_wait_for_the_rest_end_with_75(self):
        for rank in (0, 1):
            process = self.start(self.small(), "--output-dir", self.folder / "run", env={
                "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port())})
            self.wait_for(lambda: catches(process, signal.SIGTERM), "main()")
            time.sleep(0.5)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            result = self.end(process)
            self.assertEqual(result.code, STOPPED, str(result))
            self.assertEqual(len(result.err.splitlines()), 1, str(result))
            self.assertLess(time.monotonic() - begin, 5)

    def test_a_connection_that_breaks_costs_no_step(self):
        """SIGHUP ends a run in order, with a launcher and without; SIGUSR2 is deadly to neither."""
        for flags in (("launch", "--nproc-per-node", 2), ()):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start(*flags, self.small(), "-q", "--output-dir", self.folder / "run", *ENDLESS)
            self.wait_for_a_step(process)
            process.send_signal(signal.SIGUSR2)
            self.wait_for(lambda: process.poll() is not None or
                          any(int(name[5:]) % 50 for name in checkpoints(self.folder / "run")), "the checkpoint of SIGUSR2")
            process.send_signal(signal.SIGHUP)
            result = self.end(process)
            self.assertEqual(result.code, STOPPED, str(result))

    def test_torchrun_starts_ranks(self):
        torchrun = os.environ.get("TORCHRUN") or shutil.which("torchrun")
        if not torchrun:
            self.skipTest("no torchrun (set TORCHRUN)")
        one = self.one()
        subprocess.run([torchrun, "--no-python", "--nproc-per-node", "4", "--master-port", str(free_port()), PROGRAM, str(self.small()),
                        "-q", "--output-dir", str(self.folder / "run")], cwd=SOURCES, check=True, timeout=300,
                       env=dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1"), capture_output=True)
        self.assert_same_state(one, self.folder / "run")

    def test_mpirun_starts_ranks(self):
        mpirun = shutil.which("mpirun")
        if not mpirun:
            self.skipTest("no mpirun")
        one = self.one()
        port = str(free_port())
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1", MASTER_PORT=port,
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        subprocess.run([mpirun, "-n", "4", PROGRAM, str(self.small()), "-q", "--output-dir", str(self.folder / "run")],
                       cwd=SOURCES, check=True, timeout=300, env=environment, capture_output=True)
        self.assert_same_state(one, self.folder / "run")


if __name__ == "__main__":
    main()
