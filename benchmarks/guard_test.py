#!/usr/bin/env python3
"""Tests of guard.py and of scripts/bench.sh --guard.

    guard_test.py [--penstock BINARY]

With a binary also the guard itself: against the same binary it passes; one that shares its core
with other work is reported as slower, and one that holds more memory as larger.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import guard

PENSTOCK = None
ROOT = pathlib.Path(__file__).resolve().parent.parent


def pairs(speeds, memories=None):
    memories = memories or [1.0] * len(speeds)
    return [{"speed": speed, "memory": memory} for speed, memory in zip(speeds, memories)]


class Judge(unittest.TestCase):
    def test_equal_speeds_pass(self):
        row = guard.judge("x", pairs([1.0, 0.98, 1.03, 0.99]))
        self.assertEqual((row["slower"], row["larger"]), (False, False))
        self.assertEqual(guard.verdict(row), "yes")

    def test_a_steady_loss_of_eight_per_cent_fails(self):
        row = guard.judge("x", pairs([0.92, 0.91, 0.93, 0.92, 0.90, 0.94, 0.92, 0.92]))
        self.assertTrue(row["slower"])
        self.assertEqual(guard.verdict(row), "SLOWER")

    def test_a_loss_within_the_spread_is_noise(self):
        row = guard.judge("x", pairs([0.8, 1.2, 0.7, 1.1, 0.9, 0.94, 0.8, 1.3]))
        self.assertFalse(row["slower"])
        self.assertEqual(guard.verdict(row), "noise")

    def test_one_outlier_of_eight_does_not_hide_a_loss(self):
        row = guard.judge("x", pairs([0.9] * 7 + [1.5]))
        self.assertTrue(row["slower"])

    def test_a_loss_of_four_per_cent_is_allowed(self):
        self.assertFalse(guard.judge("x", pairs([0.96] * 8))["slower"])

    def test_more_memory_fails_and_less_passes(self):
        self.assertTrue(guard.judge("x", pairs([1.0] * 4, [1.1] * 4))["larger"])
        self.assertFalse(guard.judge("x", pairs([1.0] * 4, [0.5] * 4))["larger"])

    def test_the_exit_code_prefers_a_failed_program(self):
        good, bad = guard.judge("x", pairs([1.0] * 4)), guard.judge("x", pairs([0.5] * 4))
        failed = {"what": "x", "failed": "exit code 2"}
        self.assertEqual(guard.exit_code([good]), 0)
        self.assertEqual(guard.exit_code([good, bad]), 1)
        self.assertEqual(guard.exit_code([good, bad, failed]), 3)
        self.assertIn("FAILED", guard.table([good, failed]))


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class OfBinaries(unittest.TestCase):
    """With the real program, one row, small."""

    def setUp(self):
        if PENSTOCK is None:
            self.skipTest("no --penstock")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def wrapper(self, text):
        return write_program(pathlib.Path(self.folder.name) / "penstock",
                             f"#!/bin/bash\nreal={PENSTOCK}\n{text}\n")

    def guard(self, new, old):
        done = subprocess.run([sys.executable, ROOT / "benchmarks/guard.py", "--penstock", new,
                               "--against", old, "--only", "mlp, one worker", "--quick", "--json"],
                              capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads(done.stdout)["rows"][0]

    def test_a_binary_is_as_good_as_itself(self):
        code, row = self.guard(PENSTOCK, PENSTOCK)
        self.assertEqual(code, 0, row)

    # A loop takes turns with the program on one core.
    SLOWED = """core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
taskset -c "$core" bash -c 'while :; do :; done' & loop=$!
taskset -c "$core" "$real" "$@"; code=$?
kill $loop; exit $code"""

    def test_a_binary_that_shares_its_core_is_slower(self):
        code, row = self.guard(self.wrapper(self.SLOWED), PENSTOCK)
        self.assertEqual(code, 1, row)
        self.assertTrue(row["slower"], row)
        self.assertLess(row["speed"]["median"], 0.8, row)

    def test_a_binary_that_holds_more_memory_is_larger(self):
        large = self.wrapper("python3 -c 'b = bytearray(b\"x\") * 500000000'; \"$real\" \"$@\"")
        code, row = self.guard(large, PENSTOCK)
        self.assertEqual((code, row["larger"]), (1, True), row)

    def test_a_program_that_fails_is_no_comparison(self):
        broken = self.wrapper("echo 'no such option' >&2; exit 2")
        done = subprocess.run([sys.executable, ROOT / "benchmarks/guard.py", "--penstock", broken,
                               "--against", PENSTOCK, "--only", "mlp, one worker", "--quick"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no such option", done.stderr)


class OfCommits(unittest.TestCase):
    """scripts/bench.sh --guard in a small repository whose compiler writes a line per build."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.folder / "tree"
        for name in ("scripts/bench.sh", "scripts/common.sh"):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)
        write_program(self.tree / "benchmarks/guard.py", "import sys; print(*sys.argv[1:])\n")
        write_program(self.tree / "CMakePresets.json", "{}\n")
        write_program(self.tree / ".gitignore", "build/\n")
        write_program(self.tree / "code", "1\n")
        self.make_programs()
        self.git("init", "-q")
        self.commit("1")

    def make_programs(self):
        programs = self.folder / "bin"
        torch = self.tree / "build/venv"
        write_program(torch / "share/cmake/Torch/TorchConfig.cmake", "")
        write_program(programs / "cmake", f"""#!/bin/bash
[[ "$1" == --build ]] || exit 0
echo "$PWD" >>{self.folder}/builds
mkdir -p build/release-wheel
cp code build/release-wheel/penstock; cp code build/release-wheel/penstock-train
chmod +x build/release-wheel/*\n""")
        # Nothing is installed: that would take minutes.
        write_program(programs / "python3",
                      f'#!/bin/bash\n[[ "$1" != -m ]] && exec {sys.executable} "$@"; exit 9\n')
        # What install_torch_wheel notes when all is there.
        script = ("source scripts/common.sh; declare -f install_torch_wheel |"
                  " sed -n 's/.*packages=(\\(.*\\));/\\1/p' |"
                  " (read -r words; eval \"set -- $words\"; echo \"$*\")")
        note = subprocess.run(["bash", "-c", script], cwd=self.tree, capture_output=True, text=True,
                              check=True).stdout
        write_program(torch / "penstock-torch", note)

    def git(self, *words):
        return subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words],
                              cwd=self.tree, check=True, capture_output=True, text=True).stdout

    def commit(self, text):
        (self.tree / "code").write_text(text + "\n")
        self.git("add", "-A")
        self.git("commit", "-qm", text)
        return self.git("rev-parse", "HEAD").strip()

    def guard(self, *options, code=0):
        """What was built, and the program that was compared with."""
        builds = self.folder / "builds"
        builds.unlink(missing_ok=True)
        done = subprocess.run(["scripts/bench.sh", "--guard", "--no-install", *options],
                              cwd=self.tree, capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, done.stderr)
        if code != 0:
            return done.stderr
        words = done.stdout.split()
        return builds.read_text().split(), pathlib.Path(words[words.index("--against") + 1])

    def test_changes_are_compared_with_the_last_commit_which_is_built_once(self):
        (self.tree / "code").write_text("changed\n")
        head = self.git("rev-parse", "HEAD").strip()
        built, against = self.guard()
        self.assertEqual(built, [str(self.tree), f"{self.tree}/build/guard/{head}.tree"])
        self.assertEqual(against.read_text(), "1\n")
        self.assertEqual(self.guard(), ([str(self.tree)], against))
        self.assertFalse((self.tree / f"build/guard/{head}.tree").exists())

    def test_a_tree_without_changes_is_kept_and_compared_with_the_commit_before(self):
        self.commit("2")
        _, against = self.guard()
        self.assertEqual(against.read_text(), "1\n")
        (self.tree / "code").write_text("changed\n")
        built, against = self.guard()
        self.assertEqual((built, against.read_text()), ([str(self.tree)], "2\n"))

    def test_against_takes_a_commit_or_a_program(self):
        self.commit("2")
        self.commit("3")
        _, against = self.guard("--against", "HEAD~2")
        self.assertEqual(against.read_text(), "1\n")
        _, against = self.guard("--against", "code")
        self.assertEqual(against, self.tree / "code")
        self.assertIn("expected a program or a commit, found 'nothing'",
                      self.guard("--against", "nothing", code=2))

    def test_a_build_that_fails_ends_the_guard(self):
        (self.tree / "code").write_text("changed\n")
        broken = self.folder / "bin/cmake"
        broken.write_text(broken.read_text().replace(
            "mkdir", '[[ "$PWD" != *.tree ]] || exit 7; mkdir'))
        self.assertIn("exit code 7", self.guard(code=7))


if __name__ == "__main__":
    if "--penstock" in sys.argv:
        at = sys.argv.index("--penstock")
        PENSTOCK = pathlib.Path(sys.argv[at + 1]).resolve()
        del sys.argv[at:at + 2]
    unittest.main()
