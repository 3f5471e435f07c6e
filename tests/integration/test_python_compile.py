"""`mlir_offload.compile`: programs compiled from Python, and errors that become exceptions."""

from __future__ import annotations

import ast
import ctypes
import gc
import inspect
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlir_offload
from mlir_offload.offload.interface.library import Library
from mlir_offload.toolchain.errors import (
    CompatibilityError,
    InputOutputError,
    SourceError,
    UsageError,
)

SOURCE = Path(__file__).parent / "python" / "program.mlir"
HOST: Mapping[str, Any] = {"arch": "host", "options": ["--llvm=22"]}
pytestmark = pytest.mark.llvm(22)


class Given:
    """An object whose text is a module, as MLIR's bindings and xDSL have."""

    def __str__(self) -> str:
        return SOURCE.read_text()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(directory))
        # Not those that tests of this process compiled before, in another cache.
        patch.setattr("mlir_offload.driver.python_compile._known.libraries", {})
        yield directory / "mlir-offload" / "python"


@pytest.fixture
def library(cache: Path) -> Library:
    assert cache.parent.name == "mlir-offload"
    return mlir_offload.compile(SOURCE, **HOST)


def zeros() -> np.ndarray[Any, Any]:
    return np.zeros(64, np.float32)


def test_a_program_is_compiled_once_and_called(library: Library, cache: Path) -> None:
    values = zeros()
    library.add(values, 2.5, 9.0, 4, 16)
    assert (values == 2.5).all()
    assert mlir_offload.compile(str(SOURCE), **HOST) is library
    assert [library.path] == list(cache.glob("*.so"))
    assert repr(library) == f"<library {SOURCE}: add, mix, half, same>"


def test_text_and_objects_are_modules_too(library: Library) -> None:
    text = mlir_offload.compile(SOURCE.read_text(), **HOST)
    assert text is not library
    assert mlir_offload.compile(Given(), **HOST) is text


def test_every_argument_reaches_its_register_or_its_place_on_the_stack(library: Library) -> None:
    integers = {"a": -3, "c": 1 << 40, "e": True, "f": -300, "h": 5, "n": -70000, "p": 1 << 33}
    floats = dict.fromkeys("bdgijklmoq", 1.0) | {"b": 0.5, "g": 1.5, "m": 2.25, "o": 4.0, "q": 2.0}
    wanted = -3 + 0.5 - 300 + 1.5 + 2.25 - 70000 + 4.0 + (1 << 33) + 1
    assert library.mix(**integers, **floats) == 2.0 * wanted
    assert library.half(1.5) == 1.5


@pytest.mark.parametrize(
    ("shape", "limit", "said"),
    [
        ((1, 2048), 9.0, "a block has more than 1024 threads; kernel: add; launch: grid 1"),
        ((4, 16), 0.0, "64 threads failed an assertion; kernel: add"),
        ((-1, 16), 0.0, "a kernel was launched with a grid of -1 x 1 x 1"),
    ],
)
def test_an_error_of_the_runtime_is_an_exception_and_the_next_call_works(
    library: Library, shape: tuple[int, int], limit: float, said: str
) -> None:
    values = zeros()
    with pytest.raises(mlir_offload.MlirOffloadRuntimeError) as caught:
        library.add(values, 1.0, limit, *shape)
    assert str(caught.value).startswith(said)
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]
    library.add(values, 1.0, 9.0, 4, 16)
    library.add(values, 1.0, 9.0, 0, 16)
    assert values.min() >= 1.0


def test_threads_that_fail_do_not_disturb_each_other(library: Library) -> None:
    seen: list[str] = []

    def work(number: int) -> None:
        values = zeros()
        for _ in range(20):
            try:
                library.add(values, 1.0, 99.0, 4, 16 if number % 2 else 4096)
            except mlir_offload.MlirOffloadRuntimeError:
                seen.append("failed")
        assert (values == (20.0 if number % 2 else 0.0)).all()
        seen.append("right")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == ["failed"] * 40 + ["right"] * 4


def test_a_device_that_is_not_there_is_an_exception(library: Library) -> None:
    library.set_device("cuda")
    try:
        with pytest.raises(mlir_offload.MlirOffloadRuntimeError, match="device 'cuda' was chosen"):
            library.add(zeros(), 1.0, 9.0, 4, 16)
    finally:
        library.set_device("host")


def test_signatures_name_types(library: Library) -> None:
    wanted = "(x: 'memref<?xf32>', a: float, limit: float, blocks: int, threads: int) -> None"
    assert str(inspect.signature(library.add)) == wanted
    assert str(inspect.signature(library.half)) == "(a: float) -> float"
    assert library.add.__doc__ is not None
    assert library.add.__doc__.startswith("add(x: memref<?xf32>, a: f32, limit: f32, ")


def test_the_stub_declares_the_functions(library: Library) -> None:
    text = mlir_offload.stub(library, "Kernels")
    (kernels,) = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    assert [node.name for node in kernels.body if isinstance(node, ast.FunctionDef)] == list(
        library
    )
    assert (
        "    def add(self, x: Any, a: float, limit: float, blocks: int, threads: int, *, "
        "stream: Any = ...) -> None: ...  # add(x: memref<?xf32>, a: f32, limit: f32, "
    ) in text
    assert "\n    def same(self, x: Any, *, stream: Any = ...) -> Any: ...  # same(x: mem" in text


def test_a_closed_library_says_so_and_is_loaded_again(cache: Path) -> None:
    text = f"// {cache.name}\n{SOURCE.read_text()}"
    with mlir_offload.compile(text, **HOST) as library:
        (returned := library.same(zeros()))[:] = 1.0
        function = library.half
    assert library.is_closed
    with pytest.raises(UsageError, match="<string> was closed"):
        function(1.0)
    assert (returned == 1.0).all()
    again = mlir_offload.compile(text, **HOST)
    assert again.half(0.5) == 0.5
    again.close()
    again.close()


def test_the_cache_is_used_by_another_process_and_heals(
    library: Library, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlir_offload.driver.python_compile._known.libraries", {})
    again = mlir_offload.compile(SOURCE, **HOST)
    assert again is not library
    assert again.path == library.path
    copy = cache / library.path.name
    damaged = bytearray(copy.read_bytes())
    damaged[-1] ^= 1
    # Not in place: the library is loaded.
    copy.unlink()
    copy.write_bytes(damaged)
    monkeypatch.setattr("mlir_offload.driver.python_compile._known.libraries", {})
    healed = mlir_offload.compile(SOURCE, **HOST)
    assert healed.path == library.path
    assert copy.read_bytes() != bytes(damaged)


def test_without_a_cache_the_library_is_the_processs_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(cache.glob("*"))
    made = mlir_offload.compile(SOURCE, **HOST, cache=False)
    assert made.half(2.0) == 2.0
    assert sorted(cache.glob("*")) == before
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert mlir_offload.compile(SOURCE, **HOST).half(2.0) == 2.0


@pytest.mark.parametrize(
    ("program", "options", "error", "said"),
    [
        ("module {\n  func.func @f(\n}", {}, SourceError, "<string>:2:16: expected"),
        ("nowhere.mlir", {}, InputOutputError, "nowhere.mlir: No such file or directory"),
        (SOURCE, {"arch": "sm_999"}, CompatibilityError, "LLVM 22 does not know sm_999"),
        (SOURCE, {"options": ["--linlag"]}, UsageError, "--linlag"),
        (SOURCE, {"options": ["-c"]}, UsageError, "-c is not supported"),
        ("module {}", {}, CompatibilityError, "<string>: no function of the program can be called"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_what_cannot_be_compiled_is_an_exception_of_its_class(
    program: str | Path, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        mlir_offload.compile(program, **({"arch": "host"} | options))
    assert said in str(caught.value)
    assert caught.value.__notes__


def test_load_says_how_to_compile() -> None:
    with pytest.raises(UsageError) as caught:
        mlir_offload.load(SOURCE)
    assert caught.value.hint == f"mlir_offload.compile({str(SOURCE)!r}) compiles and loads it"


def test_the_caller_is_not_forked(cache: Path) -> None:
    ran: list[str] = []
    handler = ctypes.CFUNCTYPE(None)(lambda: ran.append("fork"))
    assert ctypes.CDLL(None)["__register_atfork"](handler, None, None, None) == 0
    gc.collect()
    before = Path("/proc/self/maps").read_text().count("libLLVM")
    try:
        mlir_offload.compile(f"// {os.getpid()}\n{SOURCE.read_text()}", **HOST)
    finally:
        # The C library keeps the handler for good.
        KEPT.append(handler)
    assert ran == []
    assert cache.is_dir()
    assert Path("/proc/self/maps").read_text().count("libLLVM") == before


KEPT: list[object] = []


class OnlyDlpack:
    """An array that other libraries reach by DLPack alone, as PyTorch's are on the CPU."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.dtype = array.dtype

    def __dlpack__(self, **_: object) -> object:
        return self.array.__dlpack__()


def test_arrays_come_in_by_dlpack_and_go_out_by_it(library: Library) -> None:
    base = np.zeros((64, 2), np.float32)
    library.add(OnlyDlpack(values := zeros()), 1.0, 9.0, 4, 16)
    assert (values == 1.0).all()
    with pytest.raises(ValueError, match="layout is row by row"):
        library.add(OnlyDlpack(base[:, 0]), 1.0, 9.0, 4, 16)
    with pytest.raises(TypeError, match="its elements are f32, not float64"):
        library.add(OnlyDlpack(np.zeros(64)), 1.0, 9.0, 4, 16)
    frozen = zeros()
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match="it does not export its memory"):
        library.add(OnlyDlpack(frozen), 1.0, 9.0, 4, 16)
    returned = np.from_dlpack(library.same(values))
    assert returned.ctypes.data == values.ctypes.data


class OnDevice:
    """An array of a GPU, as CuPy gives it; its memory is the host's here, which nothing touches."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__cuda_array_interface__ = {**interface, "version": 3}


def test_an_array_of_a_gpu_stays_there(library: Library) -> None:
    given = OnDevice(zeros())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        returned = library.same(given)
    interface = returned.__cuda_array_interface__
    assert not hasattr(returned, "__array_interface__")
    assert interface["data"] == (given.array.ctypes.data, False)
    assert (returned.shape, interface["typestr"]) == ((64,), "<f4")
    assert repr(returned) == "<array of shape (64,) on a GPU>"
