"""The exception of the package."""

import torch  # noqa: F401  its libraries have to be there first

from penstock._core import PenstockError

__all__ = ["PenstockError"]
