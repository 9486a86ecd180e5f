"""Stands in for the compiled part where there is none for this PyTorch or Python, and says why."""

from penstock._errors import PenstockError
from penstock._parts import why_there_is_none

raise PenstockError(why_there_is_none())
