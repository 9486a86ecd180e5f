"""What the benchmark of large mini-batches asks for and writes.

large_batch_test.py [-k NAME]
"""

import argparse
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import large_batch  # noqa: E402

OPTIONS = argparse.Namespace(program="penstock", width=8, train_samples=640, epochs=2, lr=0.1,
                             weight_decay=0.0)  # fmt: skip


class LargeBatch(unittest.TestCase):
    def test_each_rule_is_left_out_once(self):
        found = large_batch.settings()
        self.assertEqual(list(found)[0], "all")
        self.assertEqual(found["without warmup"], ["--large-batch", "all,-warmup"])
        self.assertEqual(len(found), len(large_batch.RULES) + 2)
        self.assertEqual(found["none"], [])

    def test_samples_of_a_step_grow_and_the_base_stays(self):
        words = large_batch.command(OPTIONS, 8, 3, large_batch.settings()["all"])
        value = {word: words[i + 1] for i, word in enumerate(words[:-1])}
        self.assertEqual(int(value["--batch-size"]), 8 * large_batch.BASE)
        self.assertEqual(int(value["--base-batch-size"]), large_batch.BASE)
        self.assertEqual(value["--seed"], "3")
        self.assertNotIn("--base-batch-size", large_batch.command(OPTIONS, 8, 3, []))

    def test_rows_are_settings_and_columns_factors(self):
        text = large_batch.table({"1 none": {"1": 90.0, "2": 91.0}, "8 none": {"1": 80.0},
                                  "8 all": {"2": 89.5}}, [1, 8])
        self.assertIn("| rules | 1x | 8x |", text)
        self.assertIn("| all |  | 89.50 (89.50 to 89.50) |", text)
        self.assertIn("| none | 90.50 (90.00 to 91.00) | 80.00 (80.00 to 80.00) |", text)


if __name__ == "__main__":
    unittest.main()
