"""Ranks and launchers that are lost or stopped: who says so, and with which code all end."""
import itertools
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import threading
import time

from launching import ENDLESS, LaunchTest, catches, free_port, ranks_of
from support import RANK, SMALL, STOPPED, STORAGE, USAGE, checkpoints, main


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


class LaunchLoss(LaunchTest):
    def test_a_leader_that_is_lost_while_the_nodes_meet_is_one_sentence(self):
        """The second node talks through a proxy that ends the connection after every reply before the one with the plan."""
        configuration = self.small()
        for replies in range(5):
            port = free_port()
            proxy = CuttingProxy(port, replies)
            common = ("launch", "--nnodes", 2, "--master-addr", "127.0.0.1", "--rdzv-conf", "join_timeout=20")
            leader = self.start(*common, "--master-port", port, "--node-rank", 0, configuration, "--output-dir", self.folder / "run")
            second = self.end(self.start(*common, "--master-port", proxy.port, "--node-rank", 1, configuration, "--output-dir",
                                         self.folder / "run"))
            leader.kill()
            self.assertEqual(second.code, RANK, f"after {replies} replies: {second}")
            self.assertEqual(len(second.err.splitlines()), 1, f"after {replies} replies: {second}")

    def test_a_stopped_rank_is_named_in_time(self):
        """Also a single one, and all of them, which only the launcher can see."""
        for count, victims in ((3, [0]), (3, [2]), (1, [0]), (2, [0, 1])):
            victim = victims[0]
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            process = self.start("launch", "--nproc-per-node", count, "--", self.small(SMALL.replace("16", "18")), "-q", "--output-dir",
                                 self.folder / "run", *ENDLESS, "-s", "parallelism.timeout=1")
            self.wait_for_a_step(process)
            time.sleep(0.6)  # they tell where they are four times a second
            ranks = ranks_of(process)
            for stopped in victims:
                os.kill(ranks[stopped], signal.SIGSTOP)
            begin = time.monotonic()
            result = self.end(process)
            self.assertLess(time.monotonic() - begin, 3, str(result))
            self.assertEqual(result.code, RANK, str(result))
            # On a busy machine its last heartbeat may arrive after the others have begun to wait for it.
            name = rf"rank {victim} \(process {ranks[victim]} on [^ )]+\) (has sent no heartbeat for 1\.\d s; it was last seen|hangs) at step"
            self.assertRegex(result.err, "dltrain: " + name)
            # Only the launcher reports it, and then how to continue.
            self.assertEqual(len(re.findall("sent no heartbeat| hangs ", result.err)), 1, str(result))
            self.assertRegex(result.err, r"\n.*--resume auto continues from step \d+\n$")
            for pid in ranks.values():
                self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_a_lost_rank_leaves_a_checkpoint_to_continue_from(self):
        process = self.start("launch", "--nproc-per-node", 2, "--", self.small(), "-q", "--output-dir", self.folder / "run",
                             "-s", "training.max_steps=100000000", "-s", "checkpoint.save_steps=5", "-s", "lr_scheduler.type=constant")
        self.wait_for(lambda: process.poll() is not None or checkpoints(self.folder / "run"), "a checkpoint")
        time.sleep(0.6)  # the ranks report their state four times a second
        os.kill(ranks_of(process)[1], signal.SIGKILL)
        result = self.end(process)
        self.assertEqual(result.code, RANK, str(result))
        self.assertRegex(result.err, r"dltrain: the same command with --resume auto continues from step \d+")

    def test_ranks_that_lose_the_store_say_so(self):
        """Their launcher is stopped, so only they can report it."""
        process = self.start("launch", "--nproc-per-node", 2, "--", self.small(), "-q", "--output-dir", self.folder / "run",
                             *ENDLESS, "-s", "parallelism.timeout=1")
        self.wait_for_a_step(process)
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        process.send_signal(signal.SIGCONT)
        result = self.end(process)
        self.assertEqual(result.code, RANK, str(result))
        self.assertRegex(result.err, r"dltrain: error: rank [01] \(process \d+ on [^ )]+\) lost its connection to the run: ")
        self.assertRegex(result.err, r"\ndltrain: rank [01] \(process \d+( on [^ )]+)?\) (was lost|failed)")

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
            rest = result.err.splitlines()[1:]
            self.assertLessEqual(len(rest), 1, str(result))
            self.assertTrue(all("--resume auto continues from step" in line for line in rest), str(result))

    def ranks_of_torchrun(self, count, *arguments, text=SMALL, own=lambda rank: (), limit=lambda rank: None):
        """Ranks as torchrun starts them; `own`: arguments of one rank; `limit`: what its process does first, if anything."""
        port, configuration = str(free_port()), self.small(text.replace("16", "18"))
        return [self.start(configuration, "-q", "--output-dir", self.folder / "run", *arguments, *own(rank), preexec_fn=limit(rank),
                           env={"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank),
                                "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                for rank in range(count)]

    def test_ranks_of_other_launchers_end_with_the_code_of_the_mistake(self):
        results = [self.end(rank) for rank in self.ranks_of_torchrun(
            2, own=lambda rank: ("-s", f"optimizer.learning_rate=0.0{rank + 1}"))]
        self.assertEqual([r.code for r in results], [USAGE, USAGE], "\n".join(map(str, results)))
        self.assertEqual(results[0].err, "dltrain: rank 1 has failed and prints the reason\n")
        self.assertTrue(results[1].err.startswith("[rank 1] dltrain: error: the ranks were started with different"), results[1])

    def test_ranks_that_were_told_different_numbers_of_ranks_say_so(self):
        for sizes in ((2, 4), (4, 2)):
            port = str(free_port())
            ranks = [self.start(self.small(), "-q", "--output-dir", self.folder / "run", env={
                "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                for rank, size in enumerate(sizes)]
            for rank in ranks:
                result = self.end(rank)
                self.assertEqual(result.code, USAGE, str(result))
                self.assertIn(f"the ranks were started with different WORLD_SIZE: {sizes[0]} on rank 0 and {sizes[1]} on rank 1\n", result.err)

    def test_ranks_of_other_launchers_learn_why_rank_0_fails(self):
        """It serves the store, in which they read the reason."""
        def full_disk():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        results = [self.end(rank) for rank in self.ranks_of_torchrun(
            3, *ENDLESS, text=SMALL.replace("out_features: 24", "out_features: 4000"),
            limit=lambda rank: full_disk if rank == 0 else None)]
        self.assertEqual([r.code for r in results], [STORAGE, RANK, RANK], "\n".join(map(str, results)))
        for rank in (1, 2):
            self.assertRegex(results[rank].err, rf"^\[rank {rank}\] dltrain: error: rank 0 \(process \d+ on [^ )]+\) failed: .*: cannot write ")
            self.assertEqual(len(results[rank].err.splitlines()), 1, str(results[rank]))

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
        for delay, count in itertools.product((0, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5), (1, 3)):
            process = self.start("launch", "--nproc-per-node", count, self.small(SMALL.replace("16", "18")), "-q", "--output-dir",
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

            def saved_on_request():  # asks again: the checkpoint may be pruned before it is seen, or be one of those every 50 steps
                process.send_signal(signal.SIGUSR2)
                return any(int(name[5:]) % 50 for name in checkpoints(self.folder / "run"))

            self.wait_for(lambda: process.poll() is not None or saved_on_request(), "the checkpoint of SIGUSR2")
            process.send_signal(signal.SIGHUP)
            result = self.end(process)
            self.assertEqual(result.code, STOPPED, str(result))


if __name__ == "__main__":
    main()
