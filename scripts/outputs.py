#!/usr/bin/env python3
"""Runs the commands that documents show, and compares or renews what they print.

usage: scripts/outputs.py [--check] [--penstock FILE] [DOCUMENT...]

In a block of a document that follows the line

    <!-- printed by scripts/outputs.py -->

a line that begins with `$ ` is a command, and the lines behind it are what it prints. A line `...`
stands for lines that are left out, and `...` at the end of one for the rest of it. `# exit code 1`
behind a command says how it ends, if not with 0. The blocks of a document run one after the other
in one empty folder beside `examples`.

Without --check, lines of the same form take the place of those that differ: the numbers change, the
words stay. What has no such line is named, and is to be written by hand. Exit code 1: something
differs (--check), or is to be written by hand."""

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKER = "<!-- printed by scripts/outputs.py -->"
BLOCK = re.compile(re.escape(MARKER) + r"\n+```(?:text|console)?\n(.*?)```", re.S)
LEFT_OUT = "..."


def commands_of(block):
    """Of each command: its line, the exit code that it shall have, and the lines behind it. What
    stands before the first one is no command's."""
    commands = []
    for line in block.splitlines():
        if not commands and not line.startswith("$ "):
            continue
        if line.startswith("$ "):
            code = re.search(r"# exit code (\d+)", line)
            commands.append((line, int(code.group(1)) if code else 0, []))
        elif commands[-1][0].endswith("\\"):
            command, code, shown = commands[-1]
            commands[-1] = (f"{command}\n{line}", code, shown)
        else:
            commands[-1][2].append(line)
    return commands


def printed(command, folder, program):
    """The exit code, and the lines of both outputs as a terminal shows them. Plans take the time
    that they need: on a machine that is busy the usual limit might end their search."""
    words = shlex.split(re.sub(r"\s*#.*", "", command[2:]).replace("\\\n", " "))
    if words[:2] == ["penstock", "plan"] and "--time-limit" not in words:
        words += ["--time-limit", "0"]
    done = subprocess.run(
        [program if words[0] == "penstock" else words[0], *words[1:]], cwd=folder, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, [line.rstrip() for line in done.stdout.splitlines()]


def parts_of(shown):
    """Runs of lines between those that are left out; whether the first and the last line count."""
    parts = [[]]
    for line in shown:
        if line.strip() == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def is_same(lines, shown):
    return len(lines) == len(shown) and all(
        one == two or (two.endswith(LEFT_OUT) and one.startswith(two[: -len(LEFT_OUT)]))
        for one, two in zip(lines, shown))


def is_shown(lines, shown):
    """Whether the document shows these lines, but for those that it leaves out."""
    while shown and not shown[-1]:
        shown = shown[:-1]
    while lines and not lines[-1]:
        lines = lines[:-1]
    first, *others = parts_of(shown)
    if not others:
        return is_same(lines, first)
    if not is_same(lines[: len(first)], first):
        return False
    at = len(first)
    for part in others[:-1]:
        places = [i for i in range(at, len(lines)) if is_same(lines[i : i + len(part)], part)]
        if not places:
            return False
        at = places[0] + len(part)
    last = others[-1]
    return not last or (len(lines) - at >= len(last) and is_same(lines[-len(last) :], last))


def shape(line):
    """What stays of a line when the numbers change."""
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d[\d,.]*(?: ?[kMGTnum]?(?:s|B)\b)?", "N", line))


def renewed(lines, shown):
    """The lines to show, and those that have no place any more."""
    if not any(line.endswith(LEFT_OUT) for line in shown):
        return lines + [""] * (bool(shown) and not shown[-1]), []
    result, lost, at = [], [], 0
    for line in shown:
        if not line or line.strip() == LEFT_OUT:
            result.append(line)
            continue
        near = difflib.get_close_matches(shape(line), [shape(one) for one in lines[at:]], 1, 0.8)
        if not near:
            lost.append(line)
            continue
        at += [shape(one) for one in lines[at:]].index(near[0]) + 1
        is_cut = line.endswith(LEFT_OUT)
        result.append(lines[at - 1][: len(line) - len(LEFT_OUT)] + LEFT_OUT if is_cut
                      else lines[at - 1])
    return result, lost


def look_at(document, program, check):
    """Returns what is wrong, in lines; renews the document unless it is only to be checked."""
    text = document.read_text()
    troubles = []
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "examples", Path(folder) / "examples")

        def replace(match):
            block = match.group(1)[: match.group(1).index("$ ")]
            for command, expected, shown in commands_of(match.group(1)):
                code, lines = printed(command, folder, program)
                place = f"{document.name}: {command.splitlines()[0]}"
                if code != expected:
                    troubles.append(f"{place}: exit code {code}, expected {expected}")
                if is_shown(lines, shown):
                    new = shown
                elif check:
                    new = shown
                    troubles.append(f"{place}: the program prints something else")
                    troubles.extend(
                        difflib.unified_diff(shown, lines, "shown", "printed", "", "", 1, ""))
                else:
                    new, lost = renewed(lines, shown)
                    troubles.extend(f"{place}: no line like: {line}" for line in lost)
                block += "\n".join([command, *new]) + "\n"
            return match.group(0).replace(match.group(1), block)

        result = BLOCK.sub(replace, text)
    if result != text and not check:
        document.write_text(result)
    return troubles


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--penstock", default=ROOT / "build/release/penstock", type=Path)
    parser.add_argument("documents", nargs="*", type=Path, metavar="DOCUMENT",
                        default=[ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
    args = parser.parse_args()
    if not args.penstock.exists():
        parser.error(f"{args.penstock} is missing: build it, or name another with --penstock")
    troubles = [trouble for document in args.documents if MARKER in document.read_text()
                for trouble in look_at(document, str(args.penstock.resolve()), args.check)]
    print("\n".join(troubles), end="\n" if troubles else "")
    return bool(troubles)


if __name__ == "__main__":
    sys.exit(main())
