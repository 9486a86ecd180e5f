"""What a wheel finds of itself: the program, and what was built for the PyTorch that is there."""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from penstock import _parts
from penstock._errors import PenstockError


def _torch(version: str | None):
    def find(_name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    return mock.patch("importlib.metadata.version", find)


class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        for name in ("torch-2.13", "torch-2.15"):
            (self.here / name).mkdir()
            (self.here / name / "_core.cpython-311-x86_64-linux-gnu.so").touch()
        patch = mock.patch.object(_parts, "_HERE", self.here)
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_part_for_the_installed_pytorch_is_taken(self):
        for version in ("2.15.0", "2.15.1+cpu"):
            with _torch(version):
                self.assertEqual(_parts.training_folder(), self.here / "torch-2.15")
                path = ["package"]
                _parts.add_training_part(path)
                self.assertEqual(path, [str(self.here / "torch-2.15"), "package"])
                self.assertEqual(
                    _parts.environment()["PENSTOCK_TRAINING_PART"],
                    str(self.here / "torch-2.15" / "penstock-train"),
                )

    def test_the_program_finds_a_pytorch_that_lies_elsewhere(self):
        torch = self.here / "elsewhere" / "torch"
        (torch / "lib").mkdir(parents=True)
        (torch / "__init__.py").touch()
        path = [str(torch.parent), *sys.path]
        others = {name: one for name, one in sys.modules.items() if name.split(".")[0] != "torch"}
        with _torch("2.15.0"), mock.patch.object(sys, "path", path), mock.patch.dict(
            sys.modules, others, clear=True
        ), mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/own"}):
            found = _parts.environment()["LD_LIBRARY_PATH"]
        self.assertEqual(found, f"/own:{torch / 'lib'}")

    def test_another_pytorch_and_none_are_said(self):
        for version, found in (("2.14.0", "found 2.14.0"), (None, "none is installed")):
            with _torch(version):
                with self.assertRaisesRegex(PenstockError, f"needs PyTorch 2.13, 2.15, .*{found}"):
                    _parts.training_folder()
                path = ["package"]
                _parts.add_training_part(path)
                self.assertEqual(path, ["package"])
                self.assertIn(found, _parts.environment()["PENSTOCK_NO_TRAINING"])
                advice = "pip install 'torch==2.15.*' numpy jinja2"
                self.assertIn(advice, _parts.why_there_is_none())

    def test_another_python_is_said(self):
        with _torch("2.13.0"), mock.patch("sys.version_info", mock.Mock(major=3, minor=14)):
            self.assertRegex(_parts.why_there_is_none(), r"there for 311, .* 3\.14")

    def test_a_package_in_one_piece_has_no_choice(self):
        with mock.patch.object(_parts, "_HERE", self.here / "torch-2.13"), _torch(None):
            self.assertIsNone(_parts.training_folder())
            self.assertNotIn("PENSTOCK_NO_TRAINING", _parts.environment())


class StartTest(unittest.TestCase):
    def test_planning_imports_no_pytorch(self):
        code = "import penstock, sys; penstock.plan, penstock.verify; print('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual((done.stdout, done.returncode), ("False\n", 0), done.stderr)

    def test_the_program_says_why_it_cannot_train_and_plans_nevertheless(self):
        def run(*words):
            return subprocess.run(
                [_parts.tool_path(), *words],
                env={**os.environ, "PENSTOCK_NO_TRAINING": "training needs a PyTorch"},
                capture_output=True,
                text=True,
            )

        done = run("train", "--model", "mlp")
        self.assertEqual(done.stderr, "penstock: training needs a PyTorch\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(run("schedule", "--kind", "gpipe", "--stages", "2").returncode, 0)


if __name__ == "__main__":
    unittest.main()
