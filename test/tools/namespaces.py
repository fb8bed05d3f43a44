"""Network namespaces, one for each rank of a run, joined by a bridge."""
import itertools
import os
import subprocess


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


class Namespaces:
    """Ranks of programs that wrap() makes run in them, and reach each other by TCP alone. Wants root."""

    # What is taken down may stay for a moment: each set has names of its own. An interface's has at most 15 letters.
    numbers = itertools.count()

    def __init__(self, ranks):
        self.ranks, self.name = ranks, f"h{os.getpid() % 100000}x{next(self.numbers) % 1000}"
        self.bridge = f"{self.name}b"
        # The launcher listens on the bridge, where ranks reach it.
        network = "10.213.77.0/24"
        self.environment = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": network,
                            "OMPI_MCA_oob_tcp_if_include": network, "OMPI_MCA_pml": "ob1",
                            "PMIX_MCA_ptl_tcp_remote_connections": "1", "PMIX_MCA_ptl_tcp_if_include": network,
                            "OMPI_MCA_pmix_base_async_modex": "0"}

    def __enter__(self):
        try:
            self.set_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def set_up(self):
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", "10.213.77.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for rank in range(self.ranks):
            space, inner = f"{self.name}n{rank}", f"{self.name}e{rank}"
            ip("netns", "add", space)
            ip("link", "add", f"{self.name}v{rank}", "type", "veth", "peer", "name", inner, "netns", space)
            ip("link", "set", f"{self.name}v{rank}", "master", self.bridge, "up")
            ip("-n", space, "addr", "add", f"10.213.77.{10 + rank}/24", "dev", inner)
            ip("-n", space, "link", "set", inner, "up")
            ip("-n", space, "link", "set", "lo", "up")

    def __exit__(self, *_):
        for rank in range(self.ranks):
            subprocess.run(["ip", "netns", "del", f"{self.name}n{rank}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)

    def wrap(self, program, to):
        """A folder like that of `program`, whose ranks run in their namespaces."""
        to.mkdir()
        for entry in program.iterdir():
            if entry.name not in ("train-host", "log.jsonl", "flight.jsonl", "checkpoints"):
                os.symlink(entry, to / entry.name)
        os.link(program / "train-host", to / "train-host.real")
        script = to / "train-host"
        script.write_text("#!/bin/sh\n"
                          f"exec ip netns exec {self.name}n$OMPI_COMM_WORLD_RANK '{to}/train-host.real' \"$@\"\n")
        script.chmod(0o755)
        return to

    def cut(self, rank):
        """Drops all that goes to and from a rank, without a word to anybody."""
        ip("link", "set", f"{self.name}v{rank}", "nomaster")
