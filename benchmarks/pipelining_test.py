"""What pipelining.py says of a way: its losses match, or why there are none."""

import json
import pathlib
import tempfile
import unittest

import pipelining


class OutcomeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def outcome(self, *ranks):
        for rank, said in enumerate(ranks):
            if said:
                (self.folder / f"split.{rank}.json").write_text(json.dumps(said))
        return pipelining.outcome("split", self.folder, [3.0, 2.0], 1e-4)

    def test_losses_match_or_not(self):
        for losses, matches in (([3.0, 2.00005], True), ([3.0, 2.001], False), ([3.0], False)):
            found = self.outcome({"losses": []}, {"losses": losses})
            self.assertEqual(found["matches"], matches, losses)
            self.assertNotIn("why", found)

    def test_the_reason_is_that_of_the_rank_that_failed(self):
        lost = {"why": "RuntimeError: Connection closed by peer"}
        self.assertEqual(self.outcome({"why": "ValueError: no"}, lost)["why"], "ValueError: no")
        (self.folder / "split.0.json").unlink()
        (self.folder / "errors.0").write_text("Traceback\nImportError: penstock\n\n")
        self.assertEqual(self.outcome(None, lost)["why"], "rank 0: ImportError: penstock")

    def test_a_rank_that_ends_early_is_quoted(self):
        pipelining.run_ranks(["sideways"], "unet", self.folder, 60)
        found = pipelining.outcome("sideways", self.folder, [3.0, 2.0], 1e-4)
        self.assertFalse(found["matches"])
        self.assertRegex(found["why"], "^rank 0: .*invalid choice: 'sideways'")


if __name__ == "__main__":
    unittest.main()
