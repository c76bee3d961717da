"""The frontend room. Its files know each other: tensor.py comes first, and methods.py completes its class."""

from minicc.frontend import tensor  # isort: skip
from minicc.frontend import methods  # isort: skip

__all__ = ["methods", "tensor"]
