"""minicc: an ML compiler small enough to read.

    import minicc as mc
    x = mc.Tensor([[1., 2.], [3., 4.]])
    y = (x @ x.T).relu().softmax(axis=-1)     # lazy: a graph
    y.numpy()                                 # compiled and run

Tensors: Tensor, the dtypes (f32, bf16, float16, ...), and every operation of frontend/methods.py, which
API.md beside it lists: zeros, exp, sum, concatenate, ...; most are methods too. Random numbers in programs:
random. Transformations: jit, compile, grad, value_and_grad, vjp, jacrev, checkpoint. Parts: nn, optim, io,
functional. Changing the compiler: using. Errors: MiniccError and its children; PrecisionNotice when 64-bit
data becomes 32-bit.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import minicc.trace  # now, or else whoever imports it first would put it in the place of mc.trace

if TYPE_CHECKING:  # for editors, which do not run what they read
    from minicc.face import Tensor, compile, functional, grad, io, jit, nn, optim, random, using  # noqa: F401

__version__ = "0.1.0"
del minicc, globals()["trace"]


def __getattr__(name: str) -> Any:
    """A name of face.py, which holds them all; or a part of the package, which is there once face.py is."""
    face = None if name.startswith("__") and name != "__all__" else import_module("minicc.face")
    if name not in globals() and not hasattr(face, name):
        raise AttributeError(f"module 'minicc' has no attribute {name!r}", name=name, obj=face)
    return globals().get(name) or getattr(face, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("minicc.face").__all__})
