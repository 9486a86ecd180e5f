"""Runs the examples in the package's docstrings."""

import doctest
import sys

import penstock
from penstock import _errors, _export, _tool, _trainer, _weights, pytorch

failed = 0
for module in (penstock, _errors, _export, _tool, _trainer, _weights, pytorch):
    result = doctest.testmod(module)
    failed += result.failed
    print(f"{module.__name__}: {result.attempted} examples, {result.failed} failed")
sys.exit(1 if failed else 0)
