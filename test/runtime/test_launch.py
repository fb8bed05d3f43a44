#!/usr/bin/env python3
"""Ranks that no MPI joins: how they find each other, and how they end. Usage: test_launch.py CONFORMANCE.

The program is Conformance.cpp, on any backend. Each case looks at exit codes, at what is said, at the time that it took,
and that no process is left.
"""
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv.pop(1)
LAUNCHERS = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "HEDDLE_PORT", "TORCHELASTIC_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}


def free_ports(count):
    """The first of so many neighbours that nobody listens on."""
    for port in range(21000 + os.getpid() % 9000, 60000, count):
        sockets = []
        try:
            for neighbour in range(port, port + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", neighbour))
            return port
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
    raise RuntimeError("no free ports")


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.port = free_ports(40)
        self.ranks = []

    def tearDown(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.communicate()

    def start(self, rank, size, *arguments, **variables):
        """A rank as torchrun starts it; with `variables` alone where they name another launcher."""
        given = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": self.port, **variables}
        if "SLURM_PROCID" in variables or "HEDDLE_RANK" in variables:
            given = variables
        environment = {**CLEAN, "HEDDLE_TIMEOUT": "20", **{name: str(value) for name, value in given.items()}}
        self.ranks.append(subprocess.Popen([PROGRAM, *arguments], env=environment, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True))
        return self.ranks[-1]

    def finish(self, ranks, seconds=60):
        """Exit codes, and all that was said."""
        deadline = time.monotonic() + seconds
        said = ""
        for rank in ranks:
            output, errors = rank.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            said += output + errors
        return [rank.returncode for rank in ranks], said

    def expect_whole(self, ranks):
        codes, said = self.finish(ranks)
        self.assertEqual(codes, [0] * len(ranks), said)
        self.assertIn(f"conformance holds on {len(ranks)} ranks", said)

    def test_variables_of_torchrun(self):
        self.expect_whole([self.start(rank, 4) for rank in (3, 1, 0, 2)])

    def test_rank_zero_comes_last(self):
        others = [self.start(rank, 2) for rank in (1,)]
        time.sleep(0.5)
        self.expect_whole(others + [self.start(0, 2)])

    def test_taken_ports(self):
        # A store on MASTER_PORT, a program that says nothing on the next, one that chatters behind it.
        listeners = [socket.create_server(("127.0.0.1", self.port + i)) for i in range(2)]
        chatter = socket.create_server(("127.0.0.1", self.port + 2))
        ranks = [self.start(rank, 2) for rank in range(2)]
        chatter.settimeout(20)
        try:
            connection, _ = chatter.accept()
            connection.sendall(b"220 this is a mail server\r\n" * 4)
            connection.close()
        except TimeoutError:
            pass
        self.expect_whole(ranks)
        for one in listeners + [chatter]:
            one.close()

    def test_port_of_ones_own(self):
        self.expect_whole([self.start(rank, 2, HEDDLE_PORT=self.port + 30) for rank in range(2)])

    def test_two_jobs_on_one_machine(self):
        ranks = [self.start(rank, 2, HEDDLE_PORT=self.port, TORCHELASTIC_RUN_ID=job) for job in "ab" for rank in range(2)]
        codes, said = self.finish(ranks)
        self.assertEqual(codes, [0] * 4, said)
        self.assertEqual(said.count("conformance holds on 2 ranks"), 2, said)

    def test_variables_of_slurm(self):
        variables = {"SLURM_NTASKS": 3, "SLURM_JOB_ID": 4711, "SLURM_STEP_ID": 0, "SLURM_JOB_NUM_NODES": 1,
                     "SLURM_NODELIST": "localhost", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_TASKS": 3,
                     "HEDDLE_PORT": self.port}
        self.expect_whole([self.start(rank, 3, SLURM_PROCID=rank, SLURM_LOCALID=rank, **variables)
                           for rank in range(3)])

    def test_variables_set_by_hand(self):
        self.expect_whole([self.start(rank, 2, HEDDLE_RANK=rank, HEDDLE_WORLD=2, HEDDLE_LOCAL_RANK=rank,
                                      HEDDLE_PORT=self.port) for rank in range(2)])

    def test_one_that_never_comes(self):
        begun = time.monotonic()
        ranks = [self.start(rank, 4, HEDDLE_TIMEOUT=2) for rank in (0, 1, 3)]
        codes, said = self.finish(ranks)
        self.assertLess(time.monotonic() - begun, 15)
        self.assertNotIn(0, codes)
        self.assertIn("rank 2 did not come within 2 s", said)

    def test_rank_zero_never_comes(self):
        codes, said = self.finish([self.start(1, 2, HEDDLE_TIMEOUT=1)])
        self.assertNotEqual(codes, [0])
        self.assertIn("rank 1 found no rank 0 at 127.0.0.1", said)

    def test_one_dies(self):
        begun = time.monotonic()
        ranks = [self.start(rank, 4, "die") for rank in range(4)]
        codes, said = self.finish(ranks)
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(codes[1], -signal.SIGKILL)
        self.assertNotIn(0, codes)
        self.assertEqual(said.count("error: rank 1 ended without a word"), 1, said)

    def test_rank_zero_dies(self):
        ranks = [self.start(rank, 3, "die", "0") for rank in range(3)]
        codes, said = self.finish(ranks)
        self.assertEqual(codes[0], -signal.SIGKILL)
        self.assertNotIn(0, codes)
        self.assertIn("rank 0 ended without a word", said)

    def test_one_gives_up(self):
        ranks = [self.start(rank, 3, "fail") for rank in range(3)]
        codes, said = self.finish(ranks)
        self.assertNotIn(0, codes)
        self.assertEqual(said.count("rank 1: told to fail"), 1, said)

    def test_one_hangs(self):
        ranks = [self.start(rank, 3, "hang", HEDDLE_TIMEOUT=2) for rank in range(3)]
        codes, said = self.finish([ranks[0], ranks[2]], 30)
        self.assertNotIn(0, codes)
        self.assertIn("rank 1", said)
        ranks[1].kill()

    def test_one_is_stopped(self):
        # Rank 0 too, in whose process the hub is; another job's stopped rank is no one's.
        other = self.start(0, 3, TORCHELASTIC_RUN_ID="other", MASTER_PORT=self.port + 20)
        os.kill(other.pid, signal.SIGSTOP)
        for stopped in (2, 0):
            with self.subTest(stopped=stopped):
                ranks = [self.start(rank, 3, "stop", str(stopped), HEDDLE_TIMEOUT=2) for rank in range(3)]
                waiting = [rank for rank in ranks if rank is not ranks[stopped]]
                codes, said = self.finish(waiting, 30)
                self.assertNotIn(0, codes)
                # The hub has another sentence for it, where it is not its own process that is stopped.
                self.assertRegex(said, rf"rank {stopped} \(process {ranks[stopped].pid}\) is stopped by a signal or a debugger"
                                 + ("" if stopped == 0 else f"|missing: rank {stopped}$"))
                self.assertNotRegex(said, rf"process (?!{ranks[stopped].pid}\b)\d+\) is stopped")
                ranks[stopped].kill()
        other.kill()

    def test_a_rank_that_takes_no_place(self):
        # Frames.h: magic, what is said, from, to, communicator, tag, bytes.
        for place, size in ((7, 2), (-1, 2), (0, -5), (0, 1 << 30)):
            with self.subTest(place=place, size=size):
                ranks = [self.start(0, 2, HEDDLE_TIMEOUT=10)]
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    try:
                        speaker = socket.create_connection(("127.0.0.1", self.port + 1))
                        break
                    except OSError:
                        time.sleep(0.05)
                job = f"2 {self.port}   ".encode()
                speaker.sendall(struct.pack("=Iiiiiiq", 0x4845444c, 0, 1, 2, 0, 0, len(job)) + job)
                speaker.recv(64, socket.MSG_WAITALL)  # welcome; all are there
                speaker.sendall(struct.pack("=Iiiiiiq", 0x4845444c, 4, place, size, 0, 0, 0))
                codes, said = self.finish(ranks)
                speaker.close()
                self.assertGreater(codes[0], 0, said)
                self.assertIn("rank 1 ended without a word", said)

    def test_numbers_that_are_none(self):
        for variables in ({"RANK": "one"}, {"RANK": 2, "WORLD_SIZE": 2}, {"HEDDLE_PORT": "http"}):
            with self.subTest(**variables):
                codes, said = self.finish([self.start(0, 2, **variables)])
                self.assertEqual(codes, [2], said)
                self.assertIn(next(iter(variables)), said)


if __name__ == "__main__":
    unittest.main()
