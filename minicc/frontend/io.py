"""Trees of tensors in files: npz, which numpy reads anywhere, and safetensors, which others' models come in.

    save("model.npz", {"w": w, "blocks": [a, b]})
    load("model.npz")                    ->  {"blocks": [a, b], "w": w}, as tensors
    load("model.npz", like=params)       the same, or an error that names the first entry that does not fit

In: dicts, lists and tuples of tensors, arrays and numbers. Out: the same, as tensors with equal bits, bf16
included. An entry is called by its path, "blocks[0]"; beside the entries stands the structure, as JSON. A
file without one, from elsewhere, is read as a flat dict. Invariants: nothing in a file is ever executed (no
pickle, so no object arrays); nothing is read before its size is known and believable; a file is complete or
not there, for it is written beside and then renamed. torch.save pickles, so loading runs whatever the file
says; safetensors was made to end that. Read next: pytree.py.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicc.errors import CompileError, DtypeError, ShapeError
from minicc.frontend.primitives import as_argument
from minicc.frontend.pytree import Structure, flatten, unflatten
from minicc.frontend.scope import fail
from minicc.frontend.tensor import Tensor
from minicc.graph.dtypes import BF16, DTYPES, STORED, DType, decode, encode

STRUCTURE = "minicc.structure"  # the entry that holds the structure
MOST_DEPTH = 64  # of a structure
PLAIN_BYTES, MOST_INFLATION = 1 << 28, 100  # a compressed file may hold this, or so many times its own size
CONTAINERS: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple}

# name -> the dtype, if the file says it in minicc's terms, and the array as stored (bf16: its bits)
Entries = dict[str, tuple[DType | None, np.ndarray]]


def save(path: str | Path, tree: Any) -> None:
    """Write a tree of tensors to a file; its suffix, .npz or .safetensors, says how.

    Raises: CompileError for another suffix, a key that is neither string nor integer, or two equal paths.
    """
    leaves, structure = flatten(tree)
    entries = Entries()
    for path_inside, leaf in leaves:
        name = path_inside or "tensor"
        x = as_argument("save", name, leaf, "save what is no tensor elsewhere")
        if name in entries:
            fail("save", "two entries have one path", name, "keys without dots", kind=CompileError)
        entries[name] = (x.dtype, encode(x.numpy(), x.dtype))
    described = json.dumps(_described(structure, iter(entries)))
    write, _ = _format("save", path)
    beside = Path(f"{path}.{os.getpid()}.part")
    try:
        write(beside, entries, described)
        os.replace(beside, path)
    except CompileError:
        raise
    except Exception as error:  # an OSError, or safetensors' own
        fail("save", f"{path} cannot be written", getattr(error, "strerror", error), kind=CompileError)
    finally:
        beside.unlink(missing_ok=True)


def load(path: str | Path, like: Any = None) -> Any:
    """The tree of tensors that a file holds.

    like: a tree of tensors; the file must hold one with equal paths, shapes and dtypes, and the result has
    its containers, named tuples too. Raises: CompileError naming the file, and the entry.
    """
    _, read = _format("load", path)
    try:
        entries, described = read(Path(path))
        tensors = {name: _tensor(path, name, *entry) for name, entry in entries.items()}
        tree = tensors if described is None else _rebuilt(path, json.loads(described), tensors)
    except CompileError:
        raise
    except OSError as error:
        _wrong(path, "the file cannot be read", error.strerror or error)
    except Exception as error:  # zipfile, numpy, json and safetensors each have a family of their own
        _wrong(path, "the file is damaged, or of another kind", f"{type(error).__name__}: {error}")
    return tree if like is None else _fitted(path, tensors, like)


def _tensor(path: str | Path, name: str, dtype: DType | None, stored: np.ndarray) -> Tensor:
    try:
        return Tensor(stored if dtype is None else decode(stored, dtype), dtype)
    except CompileError as error:
        _wrong(path, f"{name}: {error.what}", error.got, error.need, error.hint, type(error))


def _format(stage: str, path: str | Path) -> tuple[Callable, Callable]:
    """How a file of this name is written and read."""
    formats = {".npz": (_write_npz, _read_npz), ".safetensors": (_write_safetensors, _read_safetensors)}
    if not isinstance(path, str | os.PathLike) or Path(path).suffix not in formats:
        fail(stage, "no format has this suffix", path, " or ".join(formats), kind=CompileError)
    return formats[Path(path).suffix]


def _wrong(path: str | Path, what: str, got: object = "", need: object = "", hint: str = "",
           kind: type[CompileError] = CompileError) -> NoReturn:
    fail("load", f"{path}: {what}", got, need, hint, kind)


# -- structure ----------------------------------------------------------------------------------------------


def _described(structure: Structure, names: Iterator[str]) -> Any:
    """A structure as JSON: a leaf is its name, None is null, a container {"list": [[key, child], ...]}."""
    if structure.kind in (None, type(None)):
        return None if structure.kind else next(names)
    odd = [key for key in structure.keys if type(key) not in (str, int)]
    if odd:
        fail("save", "this key cannot be written", repr(odd[0]), "strings or integers", kind=DtypeError)
    kind = "tuple" if issubclass(structure.kind, tuple) else structure.kind.__name__
    return {kind: [[key, _described(child, names)]
                   for key, child in zip(structure.keys, structure.children, strict=True)]}


def _rebuilt(path: str | Path, described: Any, tensors: dict[str, Tensor], depth: int = 0) -> Any:
    """The tree that a description says, each of whose names must be an entry."""
    if described is None:
        return None
    if isinstance(described, str):
        if described not in tensors:
            _wrong(path, "an entry is missing", need=described)
        return tensors[described]
    if depth > MOST_DEPTH or len(described) != 1 or not set(described) <= set(CONTAINERS):
        _wrong(path, "its structure is not one that minicc writes", str(described)[:60])
    (kind, rows), = described.items()
    children = {key: _rebuilt(path, child, tensors, depth + 1) for key, child in rows}
    return children if kind == "dict" else CONTAINERS[kind](children.values())


def _fitted(path: str | Path, tensors: dict[str, Tensor], like: Any) -> Any:
    """The tensors in the containers of `like`, whose leaves they must match one by one."""
    leaves, structure = flatten(like)
    wanted = {name or "tensor": as_argument("load", f"like: {name}", leaf, "") for name, leaf in leaves}
    for name in sorted({*wanted, *tensors}):
        if name not in wanted or name not in tensors:
            where = "is missing in the file" if name in wanted else "is not in `like`"
            _wrong(path, f"{name} {where}", f"{len(tensors)} entries", len(wanted), kind=ShapeError)
        if wanted[name].type != tensors[name].type:
            _wrong(path, f"{name} does not fit", tensors[name].type, wanted[name].type, kind=ShapeError)
    return unflatten(structure, [tensors[name] for name in wanted])


# -- npz: a zip file of npy files ----------------------------------------------------------------------------


def _write_npz(path: Path, entries: Entries, structure: str) -> None:
    arrays = {name: array for name, (_, array) in entries.items()}
    arrays[STRUCTURE] = np.frombuffer(structure.encode(), np.uint8)
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            if not _honest(name):
                fail("save", "no entry of a zip file may have this name", repr(name), kind=CompileError,
                     need="no colon, backslash, slash in front, '..'", hint="the suffix .safetensors")
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read_npz(path: Path) -> tuple[Entries, str | None]:
    with zipfile.ZipFile(path) as file:
        _believable(path, file.infolist())
        arrays = {one.filename.removesuffix(".npy"): _read_npy(path, file, one) for one in file.infolist()}
    structure = arrays.pop(STRUCTURE, None)
    known = STORED if structure is not None else {}  # elsewhere, 16 bits without sign are not bf16
    entries: Entries = {name: (known.get(array.dtype), array) for name, array in arrays.items()}
    return entries, None if structure is None else structure.tobytes().decode()


def _honest(name: str) -> bool:
    """Whether an entry may have this name: it would be a file in the folder where the zip is unpacked."""
    return not (name.startswith("/") or ".." in name.split("/") or set(name) & set("\\:\0"))


def _believable(path: Path, members: list[zipfile.ZipInfo]) -> None:
    """Refuse a zip file whose members have no honest names, stand there twice, or unpack to far too much."""
    names = [member.filename for member in members]
    for name in names:
        if not _honest(name) or not name.endswith(".npy"):
            _wrong(path, "an entry has a name that no array has", repr(name), "NAME.npy")
        if names.count(name) > 1:
            _wrong(path, "an entry stands there twice", name)
    total = sum(member.file_size for member in members)
    most = max(PLAIN_BYTES, MOST_INFLATION * path.stat().st_size)
    if total > most:
        _wrong(path, "the entries would unpack to far more than the file", f"{total} bytes",
               f"at most {most}", "np.savez, which does not compress, if the file is honest")


def _read_npy(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array, whose header must account for each of the member's bytes."""
    name = member.filename.removesuffix(".npy")
    with file.open(member) as stream:
        first = np.lib.format.read_magic(stream) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(stream)
        if dtype.kind not in "biuf":
            _wrong(path, f"{name} holds Python objects, not numbers", dtype, "numbers", kind=DtypeError)
        got, need = member.file_size - stream.tell(), math.prod(shape) * dtype.itemsize
        if got != need or min(shape, default=0) < 0:
            _wrong(path, f"{name} has not as many bytes as its shape says", got, f"{need} for {list(shape)}")
        array = np.frombuffer(bytearray(stream.read()), dtype)
    return array.reshape(shape, order="F" if columns_first else "C")


# -- safetensors: a JSON header, then the numbers ------------------------------------------------------------

WIDE = {"F64": np.float64, "I64": np.int64, "U64": np.uint64}  # which become 32 bits, if they fit


def _safetensors(stage: str) -> Any:
    """The library, which checks names, sizes and places before it hands out a byte; an optional extra."""
    try:
        return importlib.import_module("safetensors")
    except ImportError:
        fail(stage, "the library for this format is not installed", "", "safetensors",
             "pip install 'minicc-edu[safetensors]', or the suffix .npz", CompileError)


def _write_safetensors(path: Path, entries: Entries, structure: str) -> None:
    library, specs = _safetensors("save"), {}
    arrays = {name: np.asarray(array, order="C") for name, (_, array) in entries.items()}
    for name, array in arrays.items():
        kind = "bfloat16" if entries[name][0] is BF16 else array.dtype.name
        specs[name] = library.TensorSpec(dtype=kind, shape=array.shape, data_ptr=array.ctypes.data,
                                         data_len=array.nbytes)
    library.serialize_file(specs, path, metadata={STRUCTURE: structure})


def _read_safetensors(path: Path) -> tuple[Entries, str | None]:
    library, entries = _safetensors("load"), Entries()
    codes = {name.upper(): dtype for name, dtype in DTYPES.items()}
    for name, entry in library.deserialize(path.read_bytes()):
        code, dtype = entry["dtype"], codes.get(entry["dtype"])
        if dtype is None and code not in WIDE:
            _wrong(path, f"{name} has a dtype that minicc has not", code, ", ".join(codes), kind=DtypeError)
        stored = np.frombuffer(entry["data"], WIDE[code] if dtype is None else dtype.numpy)
        entries[name] = (dtype, stored.reshape(entry["shape"]))
    with library.safe_open(path, framework="np") as file:
        return entries, (file.metadata() or {}).get(STRUCTURE)
