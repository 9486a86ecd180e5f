#!/usr/bin/env python3
"""Tests of the pure parts of the network laboratory; need no root."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import formulas  # noqa: E402
from experiments import ATTEMPTS, METHODS, quiet_job, workers_of  # noqa: E402
from netlab import Counters  # noqa: E402


def seconds(method, n, k, **more):
    """In units of M/B."""
    speed = more.get("server_speed", 1)
    return formulas.synchronisation(method, n, k, **more).seconds(1, speed)


class Formulas(unittest.TestCase):

    def test_all_methods_are_an_all_reduce_without_servers(self):
        for n in range(1, 40):
            for method in ("ring", "ordered", "parameter-server", "summation"):
                self.assertAlmostEqual(seconds(method, n, 0), 2 * (n - 1) / n)

    def test_an_idle_link_lets_half_a_millisecond_pass_but_whole_packets(self):
        for rate, segments in ((1e6, 1), (100e6, 1), (200e6, 1), (300e6, 2), (1e9, 6), (1e12, 7),
                               (float("inf"), 7)):
            self.assertEqual(formulas.segments_at_once(rate, 9000), segments)
            self.assertLessEqual(formulas.bytes_at_once(segments, 9000), 65_536)
        self.assertEqual(formulas.segments_at_once(1e9, 1500), 41)

    def test_groups_of_gradients_are_sent_one_by_one(self):
        self.assertAlmostEqual(seconds("ordered", 4, 0, groups=3), 3.0)

    def test_shares_add_up_and_load_all_interfaces_alike(self):
        for n in range(2, 40):
            for k in range(1, 50):
                own, share = formulas.summation_shares(n, k)
                self.assertAlmostEqual(n * own + k * share, 1)
                self.assertGreaterEqual(own, 0)
                traffic = formulas.synchronisation("summation", n, k)
                if k <= n:
                    self.assertAlmostEqual(traffic.worker_bytes, traffic.server_bytes)
                    expected = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
                    self.assertAlmostEqual(traffic.seconds(1), expected)
                else:
                    self.assertAlmostEqual(traffic.seconds(1), 1)

    def test_no_other_shares_are_faster(self):
        for n in range(2, 9):
            for k in range(1, n + 1):
                best = seconds("summation", n, k)
                for step in range(0, 101):
                    own = step / 100 / n
                    server = n * (1 - n * own) / k
                    self.assertGreaterEqual(max(1 + (n - 2) * own, server), best - 1e-12)

    def test_four_workers(self):
        self.assertAlmostEqual(seconds("summation", 4, 2), 1.2)
        self.assertAlmostEqual(seconds("summation", 4, 4), 1.0)
        self.assertAlmostEqual(seconds("parameter-server", 4, 2), 2.0)
        self.assertAlmostEqual(seconds("parameter-server", 4, 8), 1.0)

    def test_faster_servers_count_for_more(self):
        for n in range(3, 10):
            for k in range(1, n):
                twice = seconds("summation", n, k, server_speed=2)
                self.assertAlmostEqual(twice, seconds("summation", n, min(2 * k, n)))

    def test_two_workers_gain_nothing(self):
        for k in range(4):
            self.assertAlmostEqual(seconds("summation", 2, k), 1)

    def test_ranks_of_one_host_share_its_link(self):
        self.assertAlmostEqual(formulas.direct_exchange(4, 1).worker_bytes, 1.5)
        self.assertAlmostEqual(formulas.direct_exchange(2, 2).worker_bytes, 2.0)

    def test_what_makes_no_sense_is_refused(self):
        for bad in (("ring", 0, 0), ("ring", 2, -1), ("tree", 2, 0)):
            with self.assertRaises(ValueError):
                formulas.synchronisation(*bad)

    def test_the_width_of_an_mlp(self):
        self.assertEqual(formulas.mlp_bytes(1024), 4 * 2913290)
        self.assertEqual(formulas.mlp_width(4 * 2913290), 1024)


class Parsing(unittest.TestCase):

    def test_rates(self):
        self.assertEqual(formulas.parse_rate("200Mbps"), 200e6)
        self.assertEqual(formulas.parse_rate("2.5Gbps"), 2.5e9)
        for text in ("200", "fast", "1Tbps", "-1Mbps", "0Gbps", "nanMbps"):
            with self.assertRaises(ValueError):
                formulas.parse_rate(text)
        for rate in (64e3, 200e6, 1e9):
            self.assertEqual(formulas.parse_rate(formulas.show_rate(rate)), rate)

    def test_owners_of_namespaces(self):
        self.assertEqual(formulas.owner_of("lab-12-345-h0", "lab"), (12, 345))
        for name in ("lab-12-345", "other-12-345-h0", "lab-12-x-h0", "lab-12-345-h0-1", "h0"):
            self.assertIsNone(formulas.owner_of(name, "lab"))

    def test_start_of_a_process_with_a_strange_name(self):
        fields = " ".join(str(number) for number in range(4, 30))
        self.assertEqual(formulas.start_time_of(f"12 (a) b) c) S {fields}"), 22)

    def test_tcp_segments(self):
        text = "Ip: a b\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 70 3\n"
        self.assertEqual(formulas.segments_of(text), (70, 3))

    def test_verdicts(self):
        self.assertEqual(formulas.verdict(1.0), "INFO")
        self.assertEqual(formulas.verdict(1.0, 0.97, 1.03), "PASS")
        self.assertEqual(formulas.verdict(1.04, 0.97, 1.03), "MISSED")
        self.assertEqual(formulas.verdict(14, high=15), "PASS")
        self.assertEqual(formulas.show_target(None, 15), "<= 15")


class Methods(unittest.TestCase):

    def test_every_method_has_a_formula(self):
        for method in METHODS.values():
            formulas.synchronisation(method.formula, 4, 2 if method.takes_servers else 0)

    def test_servers_are_for_those_that_take_them(self):
        self.assertEqual(METHODS["ring"].shapes([2, 4], [1]), [(2, 0), (4, 0)])
        self.assertEqual(METHODS["summation"].shapes([4], [1, 2]), [(4, 0), (4, 1), (4, 2)])


class Plans(unittest.TestCase):

    def test_workers_are_counted_from_the_places_of_the_stages(self):
        stages = [{"first_worker": 0, "replicas": 3}, {"first_worker": 3, "replicas": 1}]
        self.assertEqual(workers_of({"stages": stages, "hosts": []}), 4)

    def test_stages_of_one_worker_are_one_worker(self):
        stages = [{"first_worker": -1, "replicas": 1}] * 4
        self.assertEqual(workers_of({"stages": stages, "hosts": [0, 1, 1, 0]}), 2)


class Repeats:
    """A bench whose jobs send these numbers of 1,000 segments again."""

    def __init__(self, *sent_again):
        self.runs = [(str(number), [Counters(0, 0, 1000, 0), Counters(0, 0, 1000, number)])
                     for number in sent_again]
        self.done = 0

    def job(self, lab, hosts, command):
        self.done += 1
        return self.runs[self.done - 1]


class QuietJobs(unittest.TestCase):

    def test_a_run_without_repeated_segments_is_the_only_one(self):
        bench = Repeats(0, 50)
        self.assertEqual(quiet_job(bench, None, [], [])[0], "0")
        self.assertEqual(bench.done, 1)

    def test_a_run_with_repeated_segments_is_done_again(self):
        bench = Repeats(50, 40, 1, 0)
        self.assertEqual(quiet_job(bench, None, [], [])[0], "1")
        self.assertEqual(bench.done, 3)

    def test_the_quietest_run_counts_if_none_is_quiet(self):
        bench = Repeats(50, 40, 30, 60, 0)
        self.assertEqual(quiet_job(bench, None, [], [])[0], "30")
        self.assertEqual(bench.done, ATTEMPTS)


if __name__ == "__main__":
    unittest.main()
