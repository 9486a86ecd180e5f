#!/usr/bin/env python3
"""Tests of what the measurements of streams compute and write. Needs no penstock."""

import argparse
import json
import os
import pathlib
import sys
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "evaluation"), str(HERE.parent)]

import online_tables  # noqa: E402
import parts  # noqa: E402
import run_online  # noqa: E402
import streams  # noqa: E402

STAGES = [{"forward_ns": 1e6, "backward_ns": 2e6, "step_ns": 1e5},
          {"forward_ns": 2e6, "backward_ns": 2e6, "step_ns": 1e5}]
RUN = {"fps": 200.0, "stages": STAGES, "dropped": 0, "deadline_misses": 1, "processed": 1000,
       "frames_in": 1002, "predicted_fps": 210.0, "latency_p50_ns": 10_000_000,
       "latency_p99_ns": 11_000_000, "latency_max_ns": 12_000_000, "deadline_ns": None,
       "loss": 0.5, "accuracy": 0.75, "elapsed_ns": 5_000_000_000, "replans": 0}


class Streams(unittest.TestCase):

    def test_overhead_is_what_the_slowest_stage_leaves_of_a_frames_time(self):
        self.assertAlmostEqual(streams.overhead_ns(RUN), 5e6 - 4.1e6)

    def test_latency_is_bounded_by_stages_and_queue(self):
        self.assertAlmostEqual(streams.bound_s(RUN, 2), 4 / 200)

    def test_memory_behind_the_warm_up(self):
        samples = [{"seconds": s, "rss_bytes": 100 if s < 2 else 200 + s, "faults": 10 * s}
                   for s in range(12)]
        found = streams.after_warm_up(samples, 2, 5.0)
        self.assertEqual(found["rss_first_bytes"], 203)
        self.assertEqual(found["rss_growth_bytes"], 7)
        self.assertAlmostEqual(found["faults_per_frame"], 2.0)
        self.assertIsNone(streams.after_warm_up(samples[:3], 2, 5.0))

    def test_memory_of_a_process(self):
        self.assertGreater(streams.memory_of(os.getpid())["rss_bytes"], 1_000_000)
        self.assertIsNone(streams.memory_of(2**22 + 1))


class Parts(unittest.TestCase):

    def test_the_least_slowest_group(self):
        self.assertEqual(parts.smallest_maximum([1, 1, 1, 3], 2), 3)
        self.assertEqual(parts.smallest_maximum([2, 2, 2], 8), 2)
        self.assertEqual(parts.smallest_maximum([1, 2, 3], 1), 6)

    def test_the_highest_rate_is_found_between_two(self):
        self.assertAlmostEqual(parts.highest_rate(lambda rate: rate <= 70, 60, 110, 12), 70, 1)

    def test_a_rate_below_the_first_guess(self):
        self.assertAlmostEqual(parts.highest_rate(lambda rate: rate <= 20, 60, 110, 12), 20, 1)
        self.assertIsNone(parts.highest_rate(lambda rate: False, 60, 110, 3))

    def test_a_rate_is_sustained_without_drops_and_with_few_misses(self):
        self.assertTrue(parts.is_sustained(RUN))
        self.assertFalse(parts.is_sustained({**RUN, "dropped": 1}))
        self.assertFalse(parts.is_sustained({**RUN, "deadline_misses": 2}))

    def test_disturbed_rounds_are_repeated_and_kept(self):
        loads = iter([0.5, 0.0, 0.4, 0.01, 0.9])
        rounds = parts.calm_rounds(lambda: {"others": next(loads)}, 2)
        self.assertEqual([r["others"] for r in rounds], [0.5, 0.0, 0.4, 0.01])
        self.assertEqual(len(parts.used(rounds)), 2)
        rounds = parts.calm_rounds(lambda: {"others": 1.0}, 2)
        self.assertEqual((len(rounds), len(parts.used(rounds))), (4, 4))

    def test_learning_rates_that_diverged_are_not_chosen(self):
        runs = [{"lr": 0.1, "accuracy": 0.9, "loss": None},
                {"lr": 0.1, "accuracy": 0.9, "loss": 0.4},
                {"lr": 0.01, "accuracy": 0.8, "loss": 0.5},
                {"lr": 0.001, "accuracy": 0.7, "loss": 0.6}]
        self.assertEqual(parts.best_rate_of(runs), 0.01)
        self.assertIsNone(parts.best_rate_of(runs[:2]))


class Arguments(unittest.TestCase):

    def test_parts_are_chosen_by_name(self):
        args = run_online.parse(["--penstock", sys.executable, "--only", "scaling,quality"])
        self.assertEqual(args.only, ["scaling", "quality"])
        with self.assertRaises(SystemExit):
            run_online.parse(["--penstock", sys.executable, "--only", "speed"])


def round_of(ratio, others):
    one = {"fps": 100.0, "stage_ns": [9e6], "overhead_ns": 1e6, "others": others,
           "predicted_fps": 110.0}
    two = {"fps": 100.0 * ratio, "stage_ns": [4e6, 5e6], "overhead_ns": 3e4, "others": others,
           "predicted_fps": 209.0}
    return {"one": one, "two": two, "ratio": ratio, "apart": ratio + 0.05, "others": others}


class FakeTool:
    """Every rate is sustained for seconds, and rates above the limit miss frames in long runs."""

    def __init__(self, limit):
        self.limit = limit

    def plan(self, _stages, *_words):
        return "plan.json"

    def stream(self, *_words):
        return {**RUN, "others": 0.0}

    def watched(self, _every_s, *words):
        asked = words[words.index("--source-fps") + 1]
        return {**RUN, "deadline_misses": 100 if asked > self.limit else 1}, []


class Sustain(unittest.TestCase):

    def sustained(self, limit, long_runs):
        args = argparse.Namespace(quick=False, minutes=10, share=1.0, long_runs=long_runs)
        return parts.sustain(parts.Bench(args, FakeTool(limit), lambda text: None))

    def test_long_runs_go_on_at_lower_rates_until_few_frames_are_missed(self):
        found = self.sustained(limit=185, long_runs=5)
        rates = [run["asked_fps"] for run in found["long_runs"]]
        self.assertEqual(len(rates), 3)
        self.assertAlmostEqual(rates[1] / rates[0], 0.9, 3)
        self.assertEqual(found["asked_fps"], rates[-1])
        self.assertEqual(found["run"]["deadline_misses"], 1)

    def test_only_so_many_are_made(self):
        found = self.sustained(limit=10, long_runs=2)
        self.assertEqual(len(found["long_runs"]), 2)
        self.assertEqual(found["run"]["deadline_misses"], 100)


RESULTS = {
    "scaling": {"target": 1.8, "cases": [{
        "model": "basic", "size": "80x60",
        "rounds": [round_of(1.8, 0.01), round_of(1.9, 0.0), round_of(1.0, 0.4)]}]},
    "simulated": {"cases": [{
        "model": "basic", "depth": 10, "size": "80x60", "fps": 50.0, "ideal_fps": 80.0,
        "slowest_fps": 50.0, "allowed_fps": 51.0}]},
    "sustain": {
        "best_fps": 210.0, "rate": 200.0, "asked_fps": 190.0, "run": RUN, "bound_s": 0.02,
        "memory": {"rss_first_bytes": 2e8, "rss_last_bytes": 2e8, "faults_per_frame": 0.1},
        "samples": [{"seconds": 1, "rss_bytes": 2e8}, {"seconds": 2, "rss_bytes": 2e8}]},
    "overload": {"rounds": [
        {**RUN, "rate": 420.0, "best_fps": 210.0, "ratio": 0.95, "bound_s": 0.02, "others": 0.0}]},
    "overhead": {"cases": [{"size": "8x8", "rounds": [round_of(1.8, 0.01)]}]},
    "quality": {"chosen": [
        {"method": "sequential", "stages": 1, "lr": 0.1, "accuracy": [0.9, 0.92],
         "loss": [0.3, 0.2], "seen": 1.0},
        {"method": "current", "stages": 2, "lr": None},
        {"method": "stash", "stages": 2, "lr": 0.01, "accuracy": [0.8], "loss": [None],
         "seen": 1.0}]},
}
for name, part in RESULTS.items():
    part.update({"machine": {"cpu": "a processor", "cores": 2, "load_before": 0.1,
                             "commit": "abc", "date": "today"},
                 "load_after": 1.0, "took_s": 90.0, "quick": False})


class Documents(unittest.TestCase):

    def test_tables(self):
        text = online_tables.markdown(RESULTS)
        for line in ("| basic | 80x60 | 4.00 + 5.00 ms | 100 | 185 | 1.85 (1.80..1.90) "
                     "| 1.90 (1.85..1.95) | 1.90 | 2 of 3 |",
                     "| basic | 10 | 80x60 | 50.0 | 0.625 | 0.637 | 0.980 | 1.000 |",
                     "| frames, dropped, late | 1000, 0, 1 (0.100%) |",
                     "| ratio within a round | 0.950 |",
                     "| 1 | sequential | 100 % | 0.1 | 91.0 (90.0..92.0) % "
                     "| 0.250 (0.200..0.300) |",
                     "| 2 | current | - | - | every one diverged | - |",
                     "| 2 | stash | 100 % | 0.01 | 80.0 % | diverged |",
                     "a processor, 2 cores, load 0.1 before and 1.0 after, commit abc, today, "
                     "1.5 minutes."):
            self.assertIn(line, text)
        self.assertIn("Failed: no", online_tables.markdown(
            {"scaling": {**RESULTS["scaling"], "failed": "no"}}))

    def test_every_picture_is_valid(self):
        found = online_tables.pictures(RESULTS)
        self.assertEqual(sorted(found), ["online-memory.svg", "online-quality.svg",
                                         "online-scaling.svg", "online-simulated.svg"])
        for text in found.values():
            xml.etree.ElementTree.fromstring(text)
        self.assertEqual(online_tables.pictures({}), {})

    def test_results_are_json(self):
        json.dumps(RESULTS)


if __name__ == "__main__":
    unittest.main()
