"""Where sessions find cuBLAS: the order is the worker's, and what doctor reports is what is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpumgr.virtio import mathematics
from vgpumgr.virtio.mathematics import (
    find_directories,
    find_libraries,
    find_loaded,
    list_used,
    list_worker_options,
)


@pytest.fixture(autouse=True)
def _no_library_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "_DIRECTORIES", ())
    monkeypatch.setattr("vgpumgr.virtio.sandbox._LIBRARIES", ())


def put(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).touch()
    return directory


def test_what_is_named_stands_in_the_place_of_the_usual_directories(tmp_path: Path) -> None:
    mine = put(tmp_path / "mine", "libcublas.so.12", "libcublasLt.so.12")
    beside = put(tmp_path / "driver", "libcublas.so.13", "libcuda.so.1")
    environ = {"VGPUMGR_CUDA": str(beside / "libcuda.so.1")}
    assert find_directories(environ) == (str(beside),)
    environ["VGPUMGR_MATH"] = f"/nowhere:relative:{mine}:{mine}"
    assert find_directories(environ) == (str(mine),)
    assert list_worker_options(environ) == (f"--math={mine}",)
    assert [one.path for one in find_libraries(environ)] == [
        mine / "libcublas.so.12",
        mine / "libcublasLt.so.12",
    ]


def test_a_newer_library_comes_before_an_older_one_wherever_it_is(tmp_path: Path) -> None:
    old = put(tmp_path / "old", "libcublas.so.12")
    new = put(tmp_path / "new", "libcublas.so.13")
    loader = put(tmp_path / "loader", "libcublasLt.so.13")
    environ = {"VGPUMGR_MATH": f"{old}:{new}", "LD_LIBRARY_PATH": f"relative:{loader}"}
    assert [(one.name, one.path) for one in find_libraries(environ)] == [
        ("libcublas.so", new / "libcublas.so.13"),
        ("libcublasLt.so", loader / "libcublasLt.so.13"),
    ]


def test_links_are_resolved_so_that_the_sandbox_has_the_files(tmp_path: Path) -> None:
    real = put(tmp_path / "cuda-13.0" / "lib64", "libcublas.so.13.10.0")
    (real / "libcublas.so.13").symlink_to("libcublas.so.13.10.0")
    (tmp_path / "cuda").symlink_to("cuda-13.0")
    environ = {"VGPUMGR_MATH": str(tmp_path / "cuda" / "lib64")}
    assert find_directories(environ) == (str(real),)
    assert [one.path.name for one in find_libraries(environ)] == ["libcublas.so.13.10.0"]


def test_a_host_without_them_says_nothing_to_the_worker(tmp_path: Path) -> None:
    environ = {"VGPUMGR_MATH": str(tmp_path), "LD_LIBRARY_PATH": ""}
    assert (find_directories(environ), find_libraries(environ)) == ((), ())
    assert list_worker_options(environ) == ()


def test_cudnn_has_a_major_of_its_own_and_may_lie_elsewhere(tmp_path: Path) -> None:
    blas = put(tmp_path / "cu13" / "lib", "libcublas.so.13", "libcublasLt.so.13")
    dnn = put(tmp_path / "cudnn" / "lib", "libcudnn.so.9", "libcudnn.so.13")
    environ = {"VGPUMGR_MATH": f"{blas}:{dnn}"}
    assert find_directories(environ) == (str(blas), str(dnn))
    assert [one.path.name for one in find_libraries(environ)] == [
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudnn.so.9",
    ]


def test_what_a_session_has_loaded_is_read_from_the_kernel(tmp_path: Path) -> None:
    maps = put(tmp_path / "77") / "maps"
    maps.write_text(
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 12 /opt/a b/libcublas.so.13.1.0.3\n"
        "7f0000001000-7f0000002000 rw-p 00001000 08:01 12 /opt/a b/libcublas.so.13.1.0.3\n"
        "7f0000002000-7f0000003000 r-xp 00000000 08:01 13 /usr/lib/libcudnn_graph.so.9\n"
        "7f0000003000-7f0000004000 rw-p 00000000 00:00 0\n"
        "7f0000004000-7f0000005000 rw-p 00000000 00:00 0 [heap]\n"
    )
    assert find_loaded(77, tmp_path) == {Path("/opt/a b/libcublas.so.13.1.0.3")}
    assert find_loaded(78, tmp_path) == frozenset()


def test_what_is_loaded_stands_for_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = put(tmp_path / "lib", "libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9")
    old = tmp_path / "old/libcublas.so.12.9"
    loaded = {5: {old}, 6: {old, place / "libcublasLt.so.13"}}
    monkeypatch.setattr(mathematics, "list_descendants", lambda _: iter((5, 6, 7)))
    monkeypatch.setattr(mathematics, "find_loaded", lambda pid: frozenset(loaded.get(pid, ())))
    found = list_used({"VGPUMGR_MATH": str(place)}, 4)
    assert [(one.name, one.path, one.sessions) for one in found] == [
        ("libcublasLt.so", place / "libcublasLt.so.13", 1),
        ("libcublas.so", old, 2),
        ("libcudnn.so", place / "libcudnn.so.9", 0),
    ]
