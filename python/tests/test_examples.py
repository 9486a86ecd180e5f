"""The examples run to their end, where they check that the model has learned. Those that start
processes of their own are tests of their own."""

import importlib.util
import textwrap
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

    def test_a_second_start_of_fine_tune_goes_on_or_has_nothing_to_do(self):
        if any(importlib.util.find_spec(one) is None for one in ("transformers", "tokenizers")):
            self.skipTest("the packages transformers and tokenizers are not there")
        program = f"""
            import pathlib, shutil, sys, tempfile
            sys.path.insert(0, {str(EXAMPLES / "fine_tune")!r})
            import fine_tune
            fine_tune.EPOCHS = 1
            with tempfile.TemporaryDirectory() as folder:
                rows = fine_tune.made_up(pathlib.Path(folder))
                sys.argv[1:] = [folder, str(rows), folder + "/output"]
                fine_tune.main()
                fine_tune.main()
                shutil.rmtree(folder + "/output/merged")
                fine_tune.main()
        """
        (done,) = preloaded.run(textwrap.dedent(program), timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = [line for line in done.stdout.splitlines() if "merged" in line]
        self.assertEqual(len(said), 3, done.stdout)
        self.assertIn("is there already", said[1])


if __name__ == "__main__":
    unittest.main()
