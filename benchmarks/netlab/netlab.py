"""Hosts on one machine: a network namespace each, joined by a bridge, with a limited link.

    with Lab([Link(200e6)] * 2) as lab:
        before = lab.counters()
        ranks = lab.start_ranks([0, 1], ["penstock", "train", ...], port=29500)
        results = wait_all(ranks, timeout_s=60)
        sent = [b.sent - a.sent for a, b in zip(before, lab.counters())]

Needs root, `ip` and `tc` with the queueing discipline tbf. A namespace's name holds the process
that made it and when that began, so several laboratories can stand side by side, and what a killed
one left behind is found by the next one. Its processes end with it in any case. Not thread-safe.
Standard library only.
"""

import dataclasses
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import formulas

PREFIX = "penstocklab"
MTU = 9000  # fewer headers and fewer packets: 0.7 % of the bytes are headers
LATE_S = 50e-6  # by which the kernel's timer may be late without the link losing time
QUEUE_MS = 50  # what waits in a link's queue before packets are dropped
CONGESTION = "cubic"  # how TCP finds a link's rate: Linux's own choice, whatever this machine uses
CONGESTIONS_ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
SUBNET = "10.83.0"


class Missing(Exception):
    """This machine cannot have a laboratory; the text says what is missing."""


class LabError(Exception):
    """A command of the laboratory failed."""


@dataclasses.dataclass(frozen=True)
class Link:
    """Of a host to the bridge; None: no limit."""

    up_bits_per_s: float | None
    down_bits_per_s: float | None = -1  # -1: as `up`

    @property
    def down(self):
        return self.up_bits_per_s if self.down_bits_per_s == -1 else self.down_bits_per_s


@dataclasses.dataclass(frozen=True)
class Counters:
    """Of a host's interface, headers and acknowledgements included, and of its TCP."""

    sent: int
    received: int
    segments: int
    sent_again: int


@dataclasses.dataclass
class Rank:
    """A started process; its output goes to files."""

    name: str
    process: subprocess.Popen
    out: pathlib.Path
    err: pathlib.Path
    started_s: float
    ended_s: float | None = None

    @property
    def code(self):
        return self.process.returncode

    def stdout(self):
        return self.out.read_text(errors="replace")

    def stderr(self):
        return self.err.read_text(errors="replace")


def tool(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if check and done.returncode != 0:
        raise LabError(f"{shlex.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def is_running(pid, start_time):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return formulas.start_time_of(stat) == start_time


def namespaces():
    return [line.split()[0] for line in tool("ip", "netns", "list").splitlines() if line.strip()]


def remove_namespaces(names):
    """Kills the processes inside, then removes the namespaces, and with them their interfaces."""
    for name in names:
        for pid in tool("ip", "netns", "pids", name, check=False).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
    for name in names:
        tool("ip", "netns", "delete", name, check=False)


def job_name():
    """Of this process: begins the names of all its namespaces and folders."""
    pid = os.getpid()
    begun = formulas.start_time_of(pathlib.Path(f"/proc/{pid}/stat").read_text())
    return f"{PREFIX}-{pid}-{begun}"


def make_folder():
    """A new folder for temporary files, which sweep() finds if this process is killed."""
    return pathlib.Path(tempfile.mkdtemp(prefix=f"{job_name()}-"))


def sweep():
    """Removes namespaces and folders of laboratories whose process has ended. Returns the names."""
    folders = {path.name: path for path in pathlib.Path(tempfile.gettempdir()).glob(f"{PREFIX}-*")}
    spaces = namespaces()
    left = []
    for name in [*spaces, *folders]:
        owner = formulas.owner_of(name, PREFIX)
        if owner and not is_running(*owner):
            left.append(name)
    remove_namespaces([name for name in left if name in spaces])
    for name in left:
        if name in folders:
            shutil.rmtree(folders[name], ignore_errors=True)
    return left


def allow_congestion(name):
    """Namespaces may use TCP's congestion control `name` from now on."""
    try:
        allowed = CONGESTIONS_ALLOWED.read_text().split()
        if name not in allowed:
            CONGESTIONS_ALLOWED.write_text(" ".join([*allowed, name]))
    except OSError as error:
        raise LabError(f"TCP's congestion control '{name}': {error.strerror}") from error


class Lab:
    """Hosts h0, h1, ... with one link each, and `head`, a host without a limit for launchers."""

    congestion = CONGESTION  # of all laboratories of this process

    def __init__(self, links):
        self.links = list(links)
        self.job = job_name()
        self.names = [f"h{number}" for number in range(len(self.links))]
        self.folder = None
        self.started = []

    def __enter__(self):
        self.folder = make_folder()
        try:
            self.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def namespace(self, name):
        return f"{self.job}-{name}"

    def address(self, host):
        return f"{SUBNET}.{host + 1}"

    def build(self):
        allow_congestion(self.congestion)
        bridge = self.namespace("bridge")
        tool("ip", "netns", "add", bridge)
        tool("ip", "-n", bridge, "link", "add", "br0", "mtu", MTU, "type", "bridge")
        tool("ip", "-n", bridge, "link", "set", "br0", "up")
        for number, name in enumerate(self.names + ["head"]):
            space = self.namespace(name)
            tool("ip", "netns", "add", space)
            tool("ip", "-n", bridge, "link", "add", name, "mtu", MTU, "type", "veth", "peer",
                 "name", "eth0", "mtu", MTU, "netns", space)
            tool("ip", "-n", bridge, "link", "set", name, "master", "br0", "up")
            tool("ip", "-n", space, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            tool("ip", "-n", space, "link", "set", "lo", "up")
            tool("ip", "-n", space, "link", "set", "eth0", "up")
            tool("ip", "netns", "exec", space, "sh", "-c",
                 f"echo {self.congestion} > /proc/sys/net/ipv4/tcp_congestion_control")
        self.shape()

    def limit(self, host, link):
        """Sets the rates of a host's link."""
        self.links[host] = link
        self.shape()

    def shape(self):
        """Gives links their rates. TCP's packets are of a size that the slowest link carries in
        half a millisecond; an idle link lets one of them pass at once."""
        rates = [rate for link in self.links for rate in (link.up_bits_per_s, link.down) if rate]
        segments = formulas.segments_at_once(min(rates, default=math.inf), MTU)
        packet = formulas.bytes_at_once(segments, MTU)
        for name in self.names + ["head"]:
            tool("ip", "-n", self.namespace(name), "link", "set", "eth0", "gso_max_size", packet)
        for name, link in zip(self.names, self.links):
            for space, device, rate in ((self.namespace(name), "eth0", link.up_bits_per_s),
                                        (self.namespace("bridge"), name, link.down)):
                if rate is None:
                    tool("tc", "-n", space, "qdisc", "del", "dev", device, "root", check=False)
                else:
                    burst = packet + int(rate / 8 * LATE_S)
                    tool("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf",
                         "rate", f"{int(rate)}bit", "burst", burst, "latency", f"{QUEUE_MS}ms")

    def set_link(self, host, up):
        """Pulls a host's cable, or plugs it in again."""
        tool("ip", "-n", self.namespace("bridge"), "link", "set", self.names[host],
             "up" if up else "down")

    def counters(self):
        """One per host."""
        found = []
        for name in self.names:
            space = self.namespace(name)
            shown = json.loads(tool("ip", "-n", space, "-s", "-j", "link", "show", "eth0"))
            stats = shown[0]["stats64"]
            snmp = tool("ip", "netns", "exec", space, "cat", "/proc/net/snmp")
            segments, again = formulas.segments_of(snmp)
            found.append(Counters(stats["tx"]["bytes"], stats["rx"]["bytes"], segments, again))
        return found

    def start(self, host, command, env=None, name=None):
        """Runs a command on a host (its number, or "head")."""
        where = host if isinstance(host, str) else self.names[host]
        name = name or f"process {len(self.started)} on {where}"
        out = self.folder / f"{len(self.started)}.out"
        err = self.folder / f"{len(self.started)}.err"
        words = ["ip", "netns", "exec", self.namespace(where), "setpriv", "--pdeathsig", "KILL",
                 "env",
                 *(f"{key}={value}" for key, value in (env or {}).items()), *map(str, command)]
        with open(out, "w") as out_file, open(err, "w") as err_file:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out_file,
                                       stderr=err_file, start_new_session=True)
        rank = Rank(name, process, out, err, time.monotonic())
        self.started.append(rank)
        return rank

    def start_ranks(self, hosts, command, port=29500, env=None):
        """Starts one rank per entry of `hosts` (a host's number; hosts may repeat) as torchrun
        does. Rank 0's host is the meeting point."""
        ranks = []
        for rank, host in enumerate(hosts):
            variables = {
                "RANK": rank, "WORLD_SIZE": len(hosts),
                "LOCAL_RANK": hosts[:rank].count(host), "LOCAL_WORLD_SIZE": hosts.count(host),
                "MASTER_ADDR": self.address(hosts[0]), "MASTER_PORT": port, **(env or {})
            }
            ranks.append(self.start(host, command, variables, f"rank {rank}"))
        return ranks

    def start_mpirun(self, hosts, command, env=None):
        """One process per entry of `hosts` by Open MPI's launcher, which runs on `head`. The agent
        gives every daemon a host name of its own; with one name for all, Open MPI would take the
        hosts for one and use shared memory."""
        agent = self.folder / "rsh_agent.sh"
        agent.write_text(f"""#!/bin/sh
# HOST COMMAND...: runs the command on a host of the laboratory.
host=$1
shift
exec ip netns exec {self.job}-"$host" unshare --uts sh -c "hostname $host; $*"
""")
        agent.chmod(0o700)
        slots = [f"{self.names[host]}:{hosts.count(host)}" for host in sorted(set(hosts))]
        words = ["unshare", "--uts", "sh", "-c", 'hostname head; exec "$@"', "sh",
                 "mpirun", "--allow-run-as-root", "--mca", "plm", "rsh",
                 "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "eth0",
                 "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "eth0",
                 "--mca", "pml", "ob1", "--bind-to", "none",
                 "--host", ",".join(slots), "-n", len(hosts)]
        for key, value in (env or {}).items():
            words += ["-x", f"{key}={value}"]
        return self.start("head", [*words, *command], name="mpirun")

    def kill(self):
        """Ends all that was started here."""
        for rank in self.started:
            if rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()

    def running(self):
        """Processes inside the hosts, by their ids."""
        return [int(pid) for name in self.names + ["head"]
                for pid in tool("ip", "netns", "pids", self.namespace(name)).split()]

    def close(self):
        """Ends everything and removes the hosts; signals wait meanwhile."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK,
                                         {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            self.kill()
            remove_namespaces([name for name in namespaces() if name.startswith(self.job + "-")])
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def wait_all(ranks, timeout_s, grace_s=30):
    """Waits until all have ended; true if they did so with 0. After the first failure the others
    have `grace_s` seconds, and all have `timeout_s`; those that are late are killed."""
    deadline = time.monotonic() + timeout_s
    failed = False
    while any(rank.process.poll() is None for rank in ranks):
        now = time.monotonic()
        for rank in ranks:
            if rank.ended_s is None and rank.process.poll() is not None:
                rank.ended_s = now
                if rank.code != 0 and not failed:
                    failed = True
                    deadline = min(deadline, now + grace_s)
        if now > deadline:
            for rank in ranks:
                if rank.process.poll() is None:
                    rank.process.kill()
                    rank.process.wait()
            return False
        time.sleep(0.01)
    now = time.monotonic()
    for rank in ranks:
        rank.ended_s = rank.ended_s or now
    return all(rank.code == 0 for rank in ranks)


def exit_on_signals():
    """Signals end this program by SystemExit, so that laboratories are taken down."""
    def stop(number, _):
        raise SystemExit(128 + number)

    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, stop)


def prepare(log):
    """Removes what an earlier run left. False, with the reason logged, where this machine cannot
    have a laboratory."""
    try:
        require()
    except Missing as missing:
        log(f"skipped: {missing}")
        return False
    left = sweep()
    if left:
        log(f"removed what an earlier run left: {', '.join(left)}")
    return True


def require():
    """Raises Missing unless this machine can have a laboratory."""
    if os.geteuid() != 0:
        raise Missing("network namespaces need root")
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"),
                             ("setpriv", "util-linux")):
        if not shutil.which(program):
            raise Missing(f"there is no program '{program}' (Debian package {package})")
    try:
        with Lab([Link(100e6)]):
            pass
    except LabError as error:
        text = str(error)
        part = "a namespace"
        if re.search(r"\btbf\b", text):
            part = "the queueing discipline tbf"
        elif "congestion" in text:
            part = "TCP"
        raise Missing(f"cannot set up {part}: {text}")
