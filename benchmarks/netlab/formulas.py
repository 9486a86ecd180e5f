"""What the network laboratory expects before it measures: bytes per interface and seconds of one
synchronisation of gradients, and small parsers. No input or output, no state.

    traffic = synchronisation("summation", workers=4, servers=2, model_bytes=64e6)
    traffic.worker_bytes      # that each worker machine sends, and as many it receives
    traffic.seconds(rate)     # of machines that send and receive `rate` bytes per second
"""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Bytes of one synchronisation that cross an interface in one direction. Every method here
    sends as much as it receives, on every machine."""

    worker_bytes: float
    server_bytes: float = 0.0

    def seconds(self, rate, server_rate=None):
        """Of the slowest interface. Rates are bytes per second and direction."""
        return max(self.worker_bytes / rate, self.server_bytes / (server_rate or rate))


def synchronisation(method, workers, servers=0, model_bytes=1.0, groups=1, server_speed=1.0):
    """Traffic of one synchronisation of `model_bytes` bytes of gradients over `workers` machines
    with the help of `servers` CPU machines.

    method            bytes of a worker (n workers, k servers, M bytes)
    ring              2(n-1)/n M; servers do nothing
    ordered           (g+1)(n-1)/n M with g groups of gradients per worker; servers do nothing
    parameter-server  k = 0: every worker serves M/n, 2(n-1)/n M; otherwise M, and nM/k of a server
    summation         the shares of BytePS (OSDI 2020, section 4.1): each worker sums `own`, each
                      server `share`, so that all interfaces are busy equally long

    server_speed is the rate of a server's interface over that of a worker's. Raises ValueError for
    an unknown method and counts that make no sense."""
    if workers < 1 or servers < 0 or groups < 1 or server_speed <= 0:
        raise ValueError(f"expected workers >= 1, servers >= 0, groups >= 1, server_speed > 0, "
                         f"found {workers}, {servers}, {groups}, {server_speed}")
    n, k, size = workers, servers, model_bytes
    if method not in ("ring", "ordered", "parameter-server", "summation"):
        raise ValueError(f"unknown method '{method}'")
    if n == 1:
        return Traffic(0.0)
    if method == "ordered":
        return Traffic((groups + 1) * (n - 1) / n * size)
    if method == "ring" or k == 0:
        return Traffic(2 * (n - 1) / n * size)
    if method == "parameter-server":
        return Traffic(size, n * size / k)
    own, share = summation_shares(n, k, server_speed)
    # A worker sends what others sum, and returns what it summed itself to n - 1 others.
    return Traffic((1 - own + (n - 1) * own) * size, n * share * size)


def direct_exchange(hosts, ranks_per_host, model_bytes=1.0):
    """Traffic of a host when every rank sums the part of the gradients that it owns and sends the
    sum back: what `ordered` does. With one rank per host it is that of a ring; with more, more than
    that of a ring, which crosses each link only once per turn."""
    n = hosts * ranks_per_host
    return Traffic(2 * ranks_per_host * (n - ranks_per_host) / n * model_bytes)


def summation_shares(workers, servers, server_speed=1.0):
    """The share of the gradients that each worker machine and each CPU server sums; workers x the
    first + servers x the second is 1. From as many servers on as there are workers (at equal
    speed), workers sum nothing."""
    n, k, speed = workers, servers, server_speed
    if n == 1:
        return (1.0, 0.0) if k == 0 else (0.0, 1.0 / k)
    if k * speed >= n:
        return 0.0, 1.0 / k
    whole = n * n + k * speed * (n - 2)
    return (n - k * speed) / whole, 2 * speed * (n - 1) / whole if k else 0.0


def mlp_width(weight_bytes, depth=3, inputs=784, classes=10):
    """The hidden width with which the model `mlp` has about this many bytes of weights."""
    low, high = 1, 1 << 16
    while low < high:
        width = (low + high) // 2
        if mlp_bytes(width, depth, inputs, classes) < weight_bytes:
            low = width + 1
        else:
            high = width
    return low


def mlp_bytes(width, depth=3, inputs=784, classes=10):
    """Bytes of the weights and biases of `mlp`, four each."""
    sizes = [inputs] + [width] * depth + [classes]
    return 4 * sum(a * b + b for a, b in zip(sizes, sizes[1:]))


def parse_rate(text):
    """'200Mbps', '1Gbps', '64kbps' as bits per second. Raises ValueError."""
    for unit, factor in (("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3)):
        if text.endswith(unit):
            value = float(text[:-len(unit)]) * factor
            if not 1e3 <= value <= 1e12:
                raise ValueError(f"rate '{text}': expected 1kbps to 1000Gbps")
            return value
    raise ValueError(f"rate '{text}': expected a number and kbps, Mbps or Gbps, as in 200Mbps")


def show_rate(bits_per_s):
    for unit, factor in (("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3)):
        if bits_per_s >= factor:
            return f"{bits_per_s / factor:g}{unit}"
    return f"{bits_per_s:g}bps"


# How long a link takes for the largest packet, at most: what an idle link lets pass at once.
AT_ONCE_S = 0.5e-3
LARGEST_PACKET = 65_536  # of the kernel
# Bytes: more than the kernel puts aside for headers, and than a packet's segments have.
HEADERS = 500


def segments_at_once(bits_per_s, mtu):
    """How many full segments TCP may give to a link in one packet."""
    most_bytes = min(LARGEST_PACKET - HEADERS, bits_per_s / 8 * AT_ONCE_S)
    return max(1, int(most_bytes // mtu))


def bytes_at_once(segments, mtu):
    """The largest size of such a packet, with all headers."""
    return segments * mtu + HEADERS


def summary(values):
    """Median, lowest and highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def verdict(value, low=None, high=None):
    """PASS or MISSED; INFO without a target."""
    if low is None and high is None:
        return "INFO"
    inside = (low is None or value >= low) and (high is None or value <= high)
    return "PASS" if inside else "MISSED"


def show_target(low=None, high=None):
    if low is None and high is None:
        return "-"
    if low is None:
        return f"<= {high:g}"
    if high is None:
        return f">= {low:g}"
    return f"{low:g}..{high:g}"


def owner_of(namespace, prefix):
    """(process id, start time) in the name of a namespace of the laboratory, or None."""
    words = namespace.split("-")
    if len(words) != 4 or words[0] != prefix or not (words[1].isdigit() and words[2].isdigit()):
        return None
    return int(words[1]), int(words[2])


def start_time_of(stat):
    """Start of a process in clock ticks, from /proc/PID/stat. The second field, the program's name,
    may hold spaces and parentheses."""
    return int(stat.rpartition(")")[2].split()[19])


def segments_of(snmp):
    """TCP segments sent and sent again, from /proc/net/snmp."""
    rows = [line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:")]
    values = dict(zip(rows[0], rows[1]))
    return int(values["OutSegs"]), int(values["RetransSegs"])
