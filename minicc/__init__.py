"""minicc."""

from minicc.frontend.tensor import Tensor

__version__ = "0.1.0"
__all__ = ["Tensor"]
