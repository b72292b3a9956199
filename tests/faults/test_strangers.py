"""Strangers on the store's port: whatever they send, the run ends as if nobody had come."""
import os
import random
import socket
import struct
import threading
import time

from launching import free_port
from support import OK, USAGE, DltrainTest, main

SECRET = "a secret of this test"


def frame(body):
    return struct.pack("<I", len(body)) + body


class Stranger(threading.Thread):
    """Comes again and again until it is told to stop."""

    def __init__(self, port, seed):
        super().__init__(daemon=True)
        self.port, self.dice, self.stopping, self.visits = port, random.Random(seed), threading.Event(), 0

    def greeting(self, magic):
        return frame(magic + self.dice.choice((b"", b"another secret", SECRET.encode()[:-1], self.dice.randbytes(300))))

    def run(self):
        while not self.stopping.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as s:
                    s.settimeout(0.2)
                    self.visit(s)
            except OSError:
                time.sleep(0.01)
            self.visits += 1

    def visit(self, s):
        kind = self.dice.randrange(7)
        magic = self.dice.choice((b"dltstor4", b"dltstor4", b"dltstore"))
        if kind == 0:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        elif kind == 1:
            s.sendall(self.dice.randbytes(self.dice.randrange(1, 4000)))
        elif kind == 2:
            s.sendall(struct.pack("<I", self.dice.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF))) + self.dice.randbytes(64))
        elif kind == 3:
            s.sendall(self.greeting(magic))
            s.recv(100)
            # As a client that was let in would end the run.
            key = b"none.launch/0/end"
            s.sendall(frame(b"\0\0\0\0\x01" + struct.pack("<I", len(key)) + key + b"{}"))
        elif kind == 4:
            for byte in self.greeting(magic):
                s.sendall(bytes([byte]))
        elif kind == 5:
            time.sleep(0.05)
        else:
            others = [socket.create_connection(("127.0.0.1", self.port), timeout=1) for _ in range(20)]
            for other in others:
                other.close()
        try:
            s.recv(100)
        except OSError:
            pass


class Strangers(DltrainTest):
    def visited(self, count, runs):
        """`count` strangers at a time at the port of a run of two launchers, while it trains `runs` times."""
        seed, visits = time.time_ns(), 0
        options = ("-q", "-s", "training.max_steps=400", "-s", "checkpoint.save_steps=100")
        configuration = self.small()  # written once: launchers read it at any time
        self.run_dltrain(configuration, "--output-dir", self.folder / "quiet", "--nproc-per-node", 2, *options)
        for number in range(runs):
            port = free_port()
            strangers = [Stranger(port, seed + number * count + i) for i in range(count)]
            for stranger in strangers:
                stranger.start()
            run = self.folder / f"run{number}"
            nodes = [self.start("launch", "--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{port}", configuration, "--output-dir", run, *options,
                                env={"DLTRAIN_STORE_SECRET": SECRET, "OMP_NUM_THREADS": "1"}) for _ in range(2)]
            results = [self.end(node) for node in nodes]
            for stranger in strangers:
                stranger.stopping.set()
            for stranger in strangers:
                stranger.join()
                visits += stranger.visits
            for result in results:
                self.assertEqual(result.code, OK, f"seed {seed}\n{result}")
            self.assert_same_state(self.folder / "quiet", run)
        print(f"strangers: {visits} visits in {runs} runs, 0 let in, 0 runs lost (seed {seed})")

    def setUp(self):
        super().setUp()
        os.environ["OMP_NUM_THREADS"] = "1"

    def test_strangers_change_nothing(self):
        self.visited(count=3, runs=1)

    def test_long_strangers_change_nothing_in_a_hundred_runs(self):
        self.visited(count=8, runs=100)


if __name__ == "__main__":
    main()
