"""Files of tensors: what is saved comes back, bit by bit; what is damaged or hostile is named, not run."""

from __future__ import annotations

import io as streams
import json
import pickle
import sys
import warnings
import zipfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import minicc as mc
from minicc import Tensor
from minicc.frontend.io import load, save

SUFFIXES = (".npz", ".safetensors")
DTYPES = ("f32", "bf16", "f16", "i8", "i16", "i32", "u8", "u32", "bool")
Pair = namedtuple("Pair", "left right")


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path: Path) -> Path:
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return tmp_path / f"model{request.param}"


def npz(path: Path, entries: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in entries:
            file.writestr(name, data)
    return path


def npy(array: np.ndarray, **options) -> bytes:
    stream = streams.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


# -- what goes in comes out ----------------------------------------------------------------------------------


def test_a_tree_comes_back_as_it_was(path: Path):
    blocks = [{"b": Tensor([3])}, (Tensor(True), None)]
    tree = {"w": Tensor([[1.0, -0.0]]), "blocks": blocks, 7: {}, "none": []}
    save(path, tree)
    back = load(path)
    assert list(map(type, (back["blocks"], back["blocks"][1]))) == [list, tuple]
    assert back["w"].numpy().tobytes() == np.float32([1.0, -0.0]).tobytes() and back["w"].shape == (1, 2)
    assert back["blocks"][0]["b"].tolist() == [3] and back["blocks"][1][0].item() is True
    assert back["blocks"][1][1] is None and back[7] == {} and back["none"] == [] and set(back) == set(tree)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_bits(path: Path, dtype: str):
    values = {"b": [0, 1, 1, 0], "f": [0, 1, 3.140625, -100]}.get(Tensor(0, dtype).dtype.kind, [0, 1, 3, 100])
    x = Tensor(values, dtype=dtype)
    save(path, [x, x[:0], x.reshape(2, 2), x[1]])
    for back, want in zip(load(path), [x, x[:0], x.reshape(2, 2), x[1]], strict=True):
        assert back.dtype == want.dtype and back.shape == want.shape
        assert back.numpy().tobytes() == want.numpy().tobytes()
    np.testing.assert_array_equal(load(path)[0].numpy(), values)


def test_infinities_and_nan_survive_in_bf16(path: Path):
    save(path, Tensor([np.inf, -np.inf, np.nan], dtype="bf16"))
    np.testing.assert_array_equal(load(path).numpy(), np.float32([np.inf, -np.inf, np.nan]))


def test_a_template_gives_its_containers_and_is_held_to_its_shapes(path: Path):
    save(path, Pair(Tensor([1.0, 2.0]), Tensor(3)))
    assert isinstance(load(path), tuple)
    assert load(path, like=Pair(mc.zeros(2), Tensor(0))).left.tolist() == [1, 2]
    for like, words in ((Pair(mc.zeros(3), Tensor(0)), ["left does not fit", "f32[2]", "f32[3]"]),
                        (Pair(mc.zeros(2), Tensor(0.0)), ["right does not fit", "i32[]"]),
                        ({"left": mc.zeros(2)}, ["right is not in"]),
                        ({"left": mc.zeros(2), "other": Tensor(0), "right": Tensor(0)}, ["other is miss"])):
        with pytest.raises(mc.ShapeError) as caught:
            load(path, like)
        assert all(word in str(caught.value) for word in [*words, path.name]), caught.value
        assert caught.value.at[0].file == __file__


def test_numpy_reads_what_we_write_and_we_read_what_numpy_writes(tmp_path: Path):
    save(tmp_path / "ours.npz", {"a": Tensor([1.0, 2.0])})
    with np.load(tmp_path / "ours.npz", allow_pickle=False) as file:
        assert file["a"].tolist() == [1.0, 2.0]
    np.savez_compressed(tmp_path / "theirs.npz", a=np.arange(6, dtype=np.int32).reshape(2, 3, order="F"),
                        columns=np.asfortranarray(np.float32([[1, 2], [3, 4]])))
    theirs = load(tmp_path / "theirs.npz")
    assert theirs["a"].tolist() == [[0, 2, 4], [1, 3, 5]] and theirs["columns"].tolist() == [[1, 2], [3, 4]]


def test_the_safetensors_library_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path):
    theirs = pytest.importorskip("safetensors.numpy")
    save(tmp_path / "ours.safetensors", {"a": {"b": Tensor([1.0, 2.0])}})
    assert theirs.load_file(tmp_path / "ours.safetensors")["a.b"].tolist() == [1.0, 2.0]
    theirs.save_file({"h.0.w": np.float64([[0.5]]), "n": np.int64([7])}, tmp_path / "theirs.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mc.PrecisionNotice)
        back = load(tmp_path / "theirs.safetensors")
    assert back["h.0.w"].tolist() == [[0.5]] and str(back["n"].type) == "i32[1]"


def test_without_the_library_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(mc.CompileError, match=r"minicc-edu\[safetensors\]"):
        save(tmp_path / "model.safetensors", [Tensor(1)])


def test_a_save_that_fails_leaves_the_old_file_and_nothing_beside_it(path: Path):
    save(path, [Tensor(1)])
    with pytest.raises(mc.DtypeError, match="cannot be written"):
        save(path, {(1, 2): Tensor(2)})
    with pytest.raises(mc.CompileError, match="cannot be written"):
        save(path.parent / "missing" / path.name, [Tensor(2)])
    assert load(path)[0].item() == 1 and list(path.parent.iterdir()) == [path]


# -- what is wrong with a tree -------------------------------------------------------------------------------

WRONG_TREES = {
    "a string": ({"a": "x"}, ["a is not a Tensor", "str"]),
    "two equal paths": ({"a.b": Tensor(1), "a": {"b": Tensor(2)}}, ["one path", "a.b"]),
    "a key that is a tuple": ({(1, 2): Tensor(1)}, ["(1, 2)", "strings or integers"]),
    "a pickle": (object(), ["not a Tensor"]),
    "a key that loading would refuse": ({"layer:0": Tensor(1)}, ["layer:0", "colon", "safetensors"]),
    "a key that climbs": ({"a/../../b": Tensor(1)}, ["a/../../b"]),
}


@pytest.mark.parametrize("name", WRONG_TREES)
def test_a_tree_that_cannot_be_written_is_one_clear_error(tmp_path: Path, name: str):
    tree, words = WRONG_TREES[name]
    with pytest.raises(mc.CompileError) as caught:
        save(tmp_path / "model.npz", tree)
    assert all(word in str(caught.value) for word in words) and caught.value.at[0].file == __file__


def test_another_suffix_is_an_error_that_names_ours(tmp_path: Path):
    for act in (lambda: save(tmp_path / "model.pt", [Tensor(1)]), lambda: load(tmp_path / "model.pt")):
        with pytest.raises(mc.CompileError, match=r"\.npz or \.safetensors"):
            act()


# -- damaged and hostile files -------------------------------------------------------------------------------


def evil() -> bytes:
    class Run:
        def __reduce__(self):
            return Path.touch, (Path("ran"),)
    return npy(np.array([Run()], dtype=object), allow_pickle=True)


def header(shape: str, data: bytes = b"", descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def described(tree) -> tuple[str, bytes]:
    return "minicc.structure.npy", npy(np.frombuffer(json.dumps(tree).encode(), np.uint8))


ONE = npy(np.float32([1.0]))
DEEP = "x"
for _ in range(100):
    DEEP = {"list": [[0, DEEP]]}
HOSTILE = {
    "empty": (b"", ["damaged"]),
    "a text": (b"hello", ["damaged"]),
    "a pickle": (pickle.dumps([1, 2]), ["damaged"]),
    "pickled objects": ([("a.npy", evil())], ["a holds Python objects"]),
    "a path up": ([("../a.npy", ONE)], ["'../a.npy'"]),
    "an absolute path": ([("/etc/a.npy", ONE)], ["'/etc/a.npy'"]),
    "a drive": ([("C:a.npy", ONE)], ["'C:a.npy'"]),
    "no array": ([("a.py", b"print(1)")], ["'a.py'"]),
    "no npy inside": ([("a.npy", b"print(1)")], ["damaged"]),
    "a huge shape": ([("a.npy", header("(1000000000000,)", b"1234"))], ["a has not as many bytes"]),
    "a shape that overflows": ([("a.npy", header("(4294967296, 4294967296)"))], ["a has not as many bytes"]),
    "a negative shape": ([("a.npy", header("(-1, -1)", b"1234"))], ["a has not as many bytes"]),
    "a shape that is code": ([("a.npy", header("__import__('os')"))], ["damaged"]),
    "strings": ([("a.npy", npy(np.array(["x"])))], ["a holds Python objects"]),
    "bf16 bits without a structure": ([("a.npy", npy(np.uint16([1])))], ["a: "]),
    "a number that does not fit": ([("a.npy", npy(np.array([1e300])))], ["a: ", "f32", "1e+300"]),
    "a missing entry": ([described({"dict": [["a", "b"]]})], ["an entry is missing", "b"]),
    "a strange structure": ([described({"object": []})], ["not one that minicc writes"]),
    "a deep structure": ([("x.npy", ONE), described(DEEP)], ["not one that minicc writes"]),
    "rows that are none": ([described({"list": 5})], ["damaged"]),
    "a number as structure": ([("a.npy", ONE), described(5)], ["damaged"]),
    "a later npy version": ([("a.npy", b"\x93NUMPY\x03\x00" + ONE[8:])], ["damaged"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error_and_nothing_runs(name: str, tmp_path: Path, monkeypatch):
    content, words = HOSTILE[name]
    path = tmp_path / "model.npz"
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        npz(path, content)
    with pytest.raises(mc.CompileError) as caught:
        load(path)
    assert all(word in str(caught.value) for word in ["model.npz", *words]), caught.value
    assert caught.value.at[0].file == __file__ and not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")  # zipfile's own, while the test writes the file
def test_an_entry_that_stands_there_twice_is_an_error(tmp_path: Path):
    with pytest.raises(mc.CompileError, match="twice(.|\n)*a.npy"):
        load(npz(tmp_path / "model.npz", [("a.npy", ONE), ("a.npy", ONE)]))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path):
    size = 1 << 29
    bomb = npz(tmp_path / "model.npz", [("a.npy", ONE)])
    data = bomb.read_bytes()  # the sizes in the central directory and before the data say 512 MiB
    for at in (data.index(b"PK\x01\x02") + 24, data.index(b"PK\x03\x04") + 22):
        data = data[:at] + size.to_bytes(4, "little") + data[at + 4:]
    bomb.write_bytes(data)
    with pytest.raises(mc.CompileError, match=f"far more than the file(.|\n)*{size}"):
        load(bomb)


def test_a_truncated_or_changed_file_is_an_error_wherever_it_is_cut(path: Path):
    save(path, {"a": Tensor(np.arange(40, dtype=np.float32)), "b": [Tensor(1)]})
    whole = path.read_bytes()
    for cut in range(0, len(whole) - 1, 37):
        path.write_bytes(whole[:cut])
        with pytest.raises(mc.CompileError, match=path.name):
            load(path)


def test_hostile_safetensors_are_errors_that_name_the_file(tmp_path: Path):
    pytest.importorskip("safetensors")
    path = tmp_path / "model.safetensors"

    def written(head: dict | bytes, data: bytes = b"", length: int | None = None) -> Path:
        text = head if isinstance(head, bytes) else json.dumps(head).encode()
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
        return path

    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    for case in (({"a": entry},), ({"a": entry | {"shape": [1 << 40]}}, b"1234"), (b"not json",),
                 ({"a": entry | {"data_offsets": [4, 0]}}, b"1234"), ({"a": entry}, b"1234", 1 << 60),
                 ({"a": entry | {"dtype": "OBJ"}}, b"1234"), ({"a": entry, "b": entry}, b"1234")):
        with pytest.raises(mc.CompileError, match="model.safetensors"):
            load(written(*case))
    with pytest.raises(mc.DtypeError, match="a has a dtype that minicc has not. got C64"):
        load(written({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, b"12345678"))


def test_a_missing_file_is_a_clear_error(path: Path):
    with pytest.raises(mc.CompileError, match="cannot be read. got No such file"):
        load(path)
