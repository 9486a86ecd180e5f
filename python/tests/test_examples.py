"""The examples run to their end, where they check that the model has learned. Those that start
processes of their own are tests of their own."""

import importlib.util
import unittest
from pathlib import Path

import preloaded

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


class ExamplesTest(unittest.TestCase):
    def test_they_run(self):
        programs = {path.name: path.read_text() for path in sorted(EXAMPLES.rglob("*.py"))}
        self.assertGreater(len(programs), 5)
        for name, program in programs.items():
            if "sys.executable" in program:
                continue
            missing = [one for one in ("peft", "transformers", "tokenizers")
                       if f"import {one}" in program and importlib.util.find_spec(one) is None]
            if missing:
                continue
            with self.subTest(name):
                (done,) = preloaded.run(program, timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
