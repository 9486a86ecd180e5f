#!/usr/bin/env python3
"""Tests of what the evaluation computes and writes. Needs neither root nor penstock."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "netlab"), str(HERE.parent)]

import methods  # noqa: E402
import papers  # noqa: E402
import plots  # noqa: E402
import quantities  # noqa: E402
import run_evaluation  # noqa: E402
import tables  # noqa: E402


class Quantities(unittest.TestCase):

    def test_time_to_an_accuracy_is_between_two_epochs(self):
        self.assertAlmostEqual(quantities.time_to(0.88, [(0.8, 10.0), (0.9, 20.0)]), 26.0)

    def test_an_accuracy_of_the_first_epoch_counts_from_zero(self):
        self.assertAlmostEqual(quantities.time_to(0.4, [(0.8, 10.0)]), 5.0)

    def test_an_accuracy_that_is_not_reached(self):
        self.assertIsNone(quantities.time_to(0.95, [(0.8, 10.0), (0.9, 10.0)]))

    def test_after_a_fall_the_best_accuracy_counts(self):
        # 0.8, 0.7, 0.9: the line to 0.9 begins at 0.8.
        self.assertAlmostEqual(
            quantities.time_to(0.85, [(0.8, 1.0), (0.7, 1.0), (0.9, 1.0)]), 2.5)

    def test_epochs(self):
        self.assertAlmostEqual(quantities.epochs_to(0.85, [0.8, 0.9]), 1.5)

    def test_seconds_to_a_metric_that_falls_or_rises(self):
        falling = [(10.0, 400.0), (20.0, 500.0), (30.0, 200.0)]
        # From the best before, 400 after 10 s, to 200 after 30 s.
        self.assertAlmostEqual(quantities.seconds_to(300, falling, True), 20.0)
        self.assertEqual(quantities.seconds_to(450, falling, True), 10.0)
        self.assertIsNone(quantities.seconds_to(100, falling, True))
        rising = [(10.0, 0.1), (20.0, 0.3)]
        self.assertAlmostEqual(quantities.seconds_to(0.2, rising, False), 15.0)
        self.assertIsNone(quantities.seconds_to(0.4, rising, False))
        self.assertIsNone(quantities.seconds_to(0.4, [], False))

    def test_steps_to_measure(self):
        self.assertEqual([quantities.steps_of(1.5, s) for s in (0.01, 0.2, 1.0, 9.0)],
                         [150, 8, 6, 2])
        with self.assertRaises(ValueError):
            quantities.steps_of(1.5, 0)

    def test_the_all_reduce_that_a_gain_implies(self):
        dp = {"micro_batches": 4, "micro_batch_size": 1,
              "stages": [{"replicas": 4, "forward_ns": 1e9, "backward_ns": 2e9,
                          "weight_bytes": 1e9}],
              "cluster": {"levels": [{"count": 4, "bandwidth_bytes_per_s": 1.25e9},
                                     {"count": 1, "bandwidth_bytes_per_s": 1e9}]}}
        # A step takes 4 * 2 / 1 = 8 s, 5 of them for 1.5 GB through each link.
        found = quantities.implied_all_reduce({"throughput_samples_per_s": 1.0}, dp, 2.0)
        self.assertAlmostEqual(found["seconds"], 5.0)
        self.assertAlmostEqual(found["gbps"], 2.4)
        self.assertAlmostEqual(found["nominal_gbps"], 10.0)
        self.assertIsNone(quantities.implied_all_reduce({"throughput_samples_per_s": 1.0}, dp, 1))
        self.assertIsNone(quantities.implied_all_reduce({"throughput_samples_per_s": 4.0}, dp, 2))

    def test_what_data_parallelism_needs(self):
        plan = {"micro_batches": 8, "micro_batch_size": 2,
                "stages": [{"replicas": 4, "forward_ns": 1e9, "backward_ns": 2e9,
                            "weight_bytes": 1e9}],
                "cluster": {"levels": [{"count": 2, "bandwidth_bytes_per_s": 1e10},
                                       {"count": 2, "bandwidth_bytes_per_s": 5e9}]}}
        self.assertEqual(quantities.of_data_parallelism(plan),
                         {"compute_s": 6.0, "weight_bytes": 1e9, "nominal_gbps": 40.0,
                          "ring_s": 0.3})

    def test_a_difference_is_told_by_where_the_paper_lies(self):
        def told(paper, low, high, gbps=5.0):
            return quantities.difference({
                "reported": {"ratio": paper}, "syncs": {"ring": {"ratio": low},
                                                        "ordered": {"ratio": high}},
                "nominal_gbps": 10.0, "ring_s": 0.3, "compute_s": 0.2,
                "all_reduce": {"seconds": 0.6, "gbps": gbps}})

        ring = "a ring at the full 10.0 Gbps takes 0.300 s beside 0.200 s of computing"
        needed = "the paper's gain needs one of 0.600 s, 5.00 Gbps (50 %)"
        self.assertEqual(told(2.0, 1.5, 3.0), f"within the ways to sum: {ring}; {needed}")
        self.assertEqual(told(4.0, 1.5, 3.0), f"{ring}, which hides it; {needed}")
        self.assertEqual(told(1.2, 1.5, 3.0), f"{ring}; {needed}, faster than any sum here")
        self.assertIn("(150 %): part of it was hidden", told(2.0, 1.5, 3.0, gbps=15.0))
        self.assertEqual(told(1.0, 1.0, 1.0), f"the same choice: {ring}")
        self.assertEqual(told(1.0, 1.5, 3.0), f"the paper's planner found no gain; here {ring}")

    def test_counts_and_speed_of_a_cluster(self):
        text = 'count = 4\nbandwidth = "1GB/s"  # {a}\ncount = 2\n[device]\nspeed = 1.0\n'
        self.assertEqual(
            quantities.with_counts(text, (8, 3), 2.0),
            'count = 8\nbandwidth = "1GB/s"  # {a}\ncount = 3\n[device]\nspeed = 2.0\n')
        with self.assertRaises(ValueError):
            quantities.with_counts(text, (8,), 2.0)

    def test_ratios_are_taken_within_a_round(self):
        rounds = [{"dp": {"measured": 10.0}, "mp": {"measured": 20.0}},
                  {"dp": {"measured": 20.0}, "mp": {"measured": 10.0}},
                  {"dp": {"measured": 1.0}}]
        self.assertEqual(quantities.ratios(rounds, "mp", "dp"), [2.0, 0.5])

    def test_numbers_have_three_digits(self):
        self.assertEqual([quantities.show(v) for v in (0, 0.1234, 1.234, 12.34, 1234.5, None)],
                         ["0", "0.123", "1.23", "12.3", "1,234", "-"])
        self.assertEqual(quantities.show_spread(quantities.spread([1.0])), "1.00")
        self.assertEqual(quantities.show_spread(quantities.spread([1.0, 3.0, 2.0])),
                         "2.00 (1.00..3.00)")
        self.assertEqual(quantities.show_bytes(2.5e6), "2.50 MB")


HELP = """  --strategy TEXT=auto        async is no word of --strategy
  --sync TEXT                 How replicas sum: ordered, ring,
                              {}summation
  --other TEXT                asynchronous or not
"""


class Methods(unittest.TestCase):

    def test_asynchronous_updates_are_found_in_the_help_text(self):
        asp = methods.METHODS["asp"]
        new = HELP.format("async-parameter-server, ")
        self.assertIsNone(methods.missing(asp, new))
        self.assertEqual(methods.train_options(asp, new), ("--sync", "async-parameter-server"))
        self.assertIn("no `train --sync async", methods.missing(asp, HELP.format("")))
        self.assertIsNotNone(methods.missing(asp, "no such option"))

    def test_the_other_methods_are_always_there(self):
        self.assertEqual([m.name for m in methods.METHODS.values() if methods.missing(m, "")],
                         ["asp"])

    def test_sizes_of_a_task_are_those_of_its_data(self):
        manifest = {"vocabulary": {"size": 47}, "frames": {"count": 6, "numbers": 3072},
                    "parts": {"train": {"longest": 12}}}
        words = methods.TASKS["captions"].model(manifest)
        self.assertEqual(words[-6:], ("--classes", "47", "--input", "6x3072x13", "--optimizer",
                                      "adamw"))
        words = methods.TASKS["language"].model({"vocabulary": {"size": 4000},
                                                 "parts": {"train": {}}})
        self.assertEqual(words[-6:-2], ("--classes", "4000", "--input", "64"))

    def test_methods_of_tasks_are_there_and_batches_have_halves(self):
        self.assertLessEqual(set(methods.TASK_METHODS), set(methods.METHODS))
        for task in methods.TASKS.values():
            self.assertEqual(task.batch % 2, 0)

    def test_share_of_the_all_reduce(self):
        # VGG-16 on 16 V100s at 10 Gbps: 553 MB of weights, 0.336 s for 64 samples.
        self.assertAlmostEqual(methods.all_reduce_share(553e6, 16, 10e9, 0.336), 2.469, 3)
        self.assertEqual(methods.all_reduce_share(553e6, 1, 10e9, 0.25), 0)
        with self.assertRaises(ValueError):
            methods.all_reduce_share(1, 2, 0, 1)


class Papers(unittest.TestCase):

    def test_every_number_has_its_place(self):
        for reported in papers.REPORTED:
            self.assertGreater(reported.ratio, 0)
            self.assertRegex(reported.where, r"^(table|figure|section) \d")
            self.assertIn(reported.over, ("dp", "mp", "hybrid"))

    def test_models_in_full_size_have_their_batch_and_a_device(self):
        for row in papers.FULL_SIZE:
            self.assertGreater(row.batch, 0)
            self.assertEqual(row.device, "titan-x" if row.cluster == "c" else "v100")


class Plots(unittest.TestCase):

    def test_ticks_are_round_and_cover_the_values(self):
        self.assertEqual(plots.ticks(9.3), [0, 2, 4, 6, 8, 10])
        self.assertEqual(plots.ticks(0), [0.0, 1.0])
        for highest in (0.013, 1, 7, 250, 99999):
            marks = plots.ticks(highest)
            self.assertGreaterEqual(marks[-1], highest * 0.999)
            self.assertLessEqual(len(marks), 7)
        self.assertEqual(plots.steps(81, 90, 5), [82, 84, 86, 88, 90])

    def test_pictures_are_valid_and_have_a_bar_per_value(self):
        text = plots.bars("A < B", "times", ["x", "y"], {"one": [1.0, None], "two": [2.0, 3.0]})
        root = xml.etree.ElementTree.fromstring(text)
        shapes = [node for node in root if node.tag.endswith("rect")]
        self.assertEqual(len(shapes), 1 + 3 + 2)  # background, bars, legend

    def test_names_of_many_groups_are_smaller(self):
        def sizes(count):
            root = xml.etree.ElementTree.fromstring(
                plots.bars("t", "times", [f"group {i}" for i in range(count)],
                           {"one": [1.0] * count}))
            return {node.attrib["font-size"] for node in root
                    if (node.text or "").startswith("group")}

        self.assertEqual(sizes(3), {"12"})
        self.assertEqual(sizes(14), {"9"})

    def test_lines_stay_inside(self):
        text = plots.lines("t", "%", "s", {"a": [(1, 80.0), (2, 90.0)]}, level=95)
        root = xml.etree.ElementTree.fromstring(text)
        for node in root.iter():
            for key in ("cx", "cy"):
                if key in node.attrib:
                    self.assertTrue(0 <= float(node.attrib[key]) <= plots.WIDTH)


def run(method, round_, measured, **more):
    return {
        "model": "mlp", "rate": 2e8, "hosts": 2, "method": method, "round": round_,
        "config": "2" if method == "dp" else "1-1", "measured": measured, "predicted": 100.0,
        "wire_bytes_per_sample": 1000.0, "peak_bytes_of_ranks": [3e8, 2e8], **more
    }


def learned(method, samples_per_s, evaluations):
    seconds = quantities.seconds_to(280, evaluations, True)
    return {"task": "translation", "rate": 2e8, "method": method, "config": "1-1",
            "strategy": "dp" if method == "dp" else "1f1b", "samples_per_s": samples_per_s,
            "evaluations": evaluations, "seconds_to_target": seconds, "steps_to_target": 120.0}


CONDITIONS = {
    "machine": {"cpu": "a processor", "cores": 2, "load_before": 0.1, "commit": "abc",
                "date": "today"},
    "load_after": 1.0, "rounds": 2, "seconds": 90.0, "quick": False
}
DOCUMENT = {
    "results": {
        "throughput": {
            "runs": [run("dp", 0, 50.0), run("1f1b-straight", 0, 100.0), run("dp", 1, 40.0),
                     run("1f1b-straight", 1, 120.0),
                     {**run("mp", 1, 0.0), "failed": "it fell over"},
                     run("hybrid", 0, 80.0, hosts=3)],
            "skipped": [{"method": "asp", "why": "not there"}],
            "models": {"mlp": [{"weight_bytes": 1e7, "compute_s": 0.1, "micro_batch": 64}]}
        },
        "tasks": {
            "runs": [{**run("dp", 0, 50.0), "model": "language", "samples_per_step": 16},
                     {**run("auto", 0, 90.0), "model": "language", "samples_per_step": 16,
                      "strategy": "1f1b"},
                     {**run("1f1b-straight", 0, 100.0), "model": "language",
                      "samples_per_step": 8},
                     {**run("gpipe-8", 0, 200.0), "model": "language", "samples_per_step": 64}],
            "skipped": [{"task": "captions", "why": "no such package"}],
            "models": {"language": [{"weight_bytes": 1e7, "compute_s": 0.1, "micro_batch": 8}]}
        },
        "metrics": {
            "runs": [learned("dp", 100.0, [(50.0, 300.0), (100.0, 260.0)]),
                     learned("auto", 400.0, [(15.0, 300.0), (25.0, 260.0)])],
            "skipped": [{"task": "captions", "why": "no such package"}]
        },
        "servers": {"runs": [{"workers": 4, "servers": 2, "predicted_s": 1.0, "measured_s": 1.1,
                              "busiest_host_bytes": 101.0, "worker_bytes": 100.0}]},
        "accuracy": {
            "wanted": {"target": 0.88}, "rate": 2e8,
            "runs": [{"method": "dp", "config": "2", "samples_per_s": 100.0,
                      "epochs": [(0.86, 10.0), (0.9, 10.0)], "seconds_to_target": 15.0,
                      "epochs_to_target": 1.5},
                     {"method": "1f1b-straight", "config": "1-1", "samples_per_s": 400.0,
                      "epochs": [(0.84, 2.5), (0.88, 2.5)], "seconds_to_target": 5.0,
                      "epochs_to_target": 2.0}]
        },
        "depth": {"runs": [{"stages": 1, "strategy": "serial", "weights": "flush",
                            "loss": [0.5, 0.4], "accuracy": [0.8, 0.85]}]},
        "published": {"comparisons": [{
            "reported": papers.REPORTED[0].__dict__,
            "models": {name: {"ratio": 1.9, "simulated_ratio": 1.8, "config": "15-1", "other": "16"}
                       for name in ("penstock", "sosp2019", "released")},
            "syncs": {name: {"ratio": 1.9, "simulated_ratio": 1.8, "config": "15-1", "other": "16"}
                      for name in ("ordered", "ring", "auto")},
            "all_reduce": {"seconds": 4.0, "gbps": 2.0, "nominal_gbps": 10.0}
        }, {"reported": papers.REPORTED[1].__dict__, "skipped": "no vgg16.graph.txt"}]},
        "full-size": {"comparisons": [{
            "reported": papers.FULL_SIZE[0].__dict__,
            "syncs": {name: {"ratio": ratio, "simulated_ratio": 2.4, "config": "15-1"}
                      for name, ratio in (("ordered", 8.0), ("ring", 2.5), ("auto", 2.0))},
            "auto": {"strategy": "1f1b", "config": "15-1", "ratio": 2.1},
            "compute_s": 0.3, "ring_s": 0.8, "nominal_gbps": 10.0, "weight_bytes": 5.5e8,
            "all_reduce": {"seconds": 1.4, "gbps": 5.8}
        }]}
    }
}
for part in DOCUMENT["results"].values():
    part.update(CONDITIONS)


class Documents(unittest.TestCase):

    def test_tables(self):
        text = tables.markdown(DOCUMENT)
        for line in ("| data parallelism | 45.0 samples/s |",
                     "| PipeDream, straight | 2.50 (2.00..3.00) |",  # over dp
                     "| PipeDream, straight | 1.10 (1.00..1.20) |",  # measured / predicted
                     "| PipeDream, straight | 1-1 |", "| PipeDream, straight | 1.00 kB |",
                     "| PipeDream, straight | 300 MB |",
                     "| hybrid 2-1 | 1-1 | 80.0 | - | 0.800 | 1.00 kB | 300 MB, 200 MB |"):
            self.assertIn(line, text)
        self.assertIn("a processor, 2 cores, load 0.1 before and 1.0 after, commit abc, today, "
                      "2 rounds, 1.5 minutes.", text)
        self.assertIn("Skipped: asynchronous parameter server (not there).", text)
        self.assertIn("Failed: mlp, 200Mbps, mp: it fell over", text)
        self.assertIn("4.00 in throughput, 3.00 in time to the accuracy, 0.750 in epochs to it "
                      "(time / throughput: 0.750", text)
        self.assertIn("| vgg16, 4x4 (A), over dp | 5.28 (table 1) | 15-1 | 1.90 | 1.80 | 15-1 |",
                      text)
        self.assertIn("| vgg16, 4x4 (A) | 5.28 | 1.90 (15-1) | 1.90 (15-1) | 1.90 (15-1) | "
                      "2.00 of 10.0 Gbps |", text)
        self.assertIn("| vgg16, 4x4 (A) | 64 | 5.28 (15-1) | 8.00 (15-1) | 2.50 (15-1) | "
                      "2.00 (15-1) | 2.40 | 2.10 (1f1b 15-1) |", text)
        self.assertIn("- vgg16, 4x4 (A): within the ways to sum: ", text)
        for line in ("| language | 8 | 10.0 MB |",
                     # gpipe-8 is faster, but has more samples per step than dp.
                     "| language | 200Mbps | 1f1b 1-1 | PipeDream, straight | 0.900 |",
                     "| translation | 200Mbps | data parallelism | dp 1-1 | 100 | perplexity 280 "
                     "| 120 | 75.0 s | 260 |",
                     "| translation | 200Mbps | 4.00 | 3.75 | 0.938 |",
                     "Skipped: captions (no such package)."):
            self.assertIn(line, text)
        for line in text.splitlines():
            if line.startswith("|"):
                self.assertTrue(line.endswith("|"))

    def test_tasks_without_data_are_said_to_be_skipped(self):
        nothing = {"runs": [], "models": {}, **CONDITIONS,
                   "skipped": [{"task": "captions", "why": "no font"}]}
        text = tables.markdown({"results": {"tasks": nothing, "metrics": nothing}})
        self.assertEqual(text.count("Skipped: captions (no font)."), 2)

    def test_a_metric_that_is_not_reached_has_no_ratio(self):
        found = {"runs": [learned("dp", 100.0, [(50.0, 300.0)]),
                          learned("auto", 400.0, [(15.0, 300.0), (25.0, 200.0)])], "skipped": []}
        text = tables.metrics_table(found)
        self.assertIn("| not reached | 300 |", text)
        self.assertIn("| translation | 200Mbps | 4.00 | - | - |", text)

    def test_what_was_skipped_or_failed_is_said(self):
        document = {"results": {"depth": {"skipped": "no data set", **CONDITIONS},
                                "servers": {"failed": "a host is on fire", **CONDITIONS}}}
        text = tables.markdown(document)
        self.assertIn("Skipped: no data set.", text)
        self.assertIn("Skipped: a host is on fire.", text)

    def test_every_part_has_a_picture(self):
        found = run_evaluation.pictures(DOCUMENT["results"])
        self.assertEqual(sorted(found), ["accuracy.svg", "depth.svg", "full-size.svg",
                                         "metric-translation.svg", "published.svg",
                                         "tasks-200Mbps.svg", "throughput-200Mbps.svg"])
        for text in found.values():
            xml.etree.ElementTree.fromstring(text)
        self.assertEqual(run_evaluation.pictures({}), {})


if __name__ == "__main__":
    unittest.main()
