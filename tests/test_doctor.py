"""The doctor: a real examination, what it concludes from findings, and how it looks when something is missing."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest
import torch

from helion_inductor import doctor
from helion_inductor.doctor import Finding, conclusions, run_doctor, tiny_run
from helion_inductor.errors import HelionError
from helion_inductor.runtime.kernel_store import KernelStore


def findings(**changes: str) -> list[Finding]:
    names = (
        "device",
        "entry point",
        "C++ compiler",
        "cache folder",
        "transformers",
        "compile and run",
        "compile offline",
    )
    return [Finding(name, changes.get(name.replace(" ", "_").replace("+", "p"), "ok"), "") for name in names]


def test_examination(capsys: pytest.CaptureFixture[str]) -> None:
    status = run_doctor()
    text = capsys.readouterr().out
    assert status == 0, text
    assert "[FAIL]" not in text
    for what in ("versions", "device", "interpreter", "entry point", "C++ compiler", "cache folder", "transformers"):
        assert f" {what} " in text
    assert "largest difference from eager" in text and "registers" in text
    if importlib.util.find_spec("transformers"):
        assert "python -m helion_inductor (the demo): works" in text


def test_a_failed_check_is_the_exit_status(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: findings(device="note", compile_and_run="fail"),))
    assert run_doctor() == 1
    assert "CPU tensors: does not work here; see the failed check above" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "on CUDA tensors: works"),
        ({"device": "note"}, "on CUDA tensors: needs a GPU, and there is none"),
        ({"device": "note"}, "on CPU tensors: works in Triton's interpreter (TRITON_INTERPRET=1), slowly"),
        ({"device": "note", "Cpp_compiler": "fail"}, "on CPU tensors: does not work: there is no C++ compiler"),
        ({"device": "note", "Cpp_compiler": "fail"}, "(the demo): needs a C++ compiler, or a GPU"),
        ({"compile_and_run": "fail"}, "on CUDA tensors: does not work here; see the failed check above"),
        ({"compile_offline": "fail"}, "kernel.resources('sm_90'): does not work here"),
        ({"transformers": "note"}, "(the demo): needs transformers: pip install 'helion_inductor[models]'"),
        ({"entry_point": "note"}, "backend=helion_inductor.backend.helion) on CUDA tensors: works"),
    ],
)
def test_conclusions(changes: dict[str, str], expected: str) -> None:
    assert expected in "\n".join(conclusions(findings(**changes)))


def test_lines_of_a_finding_are_aligned() -> None:
    assert str(Finding("cache folder", "fail", "first\nsecond")).splitlines() == [
        "[FAIL] cache folder       first",
        "                          second",
    ]


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(doctor, "kernel_store", lambda: KernelStore(tmp_path / "file" / "store"))
    (finding,) = doctor._cache()
    assert finding.state == "fail" and "TORCHINDUCTOR_CACHE_DIR" in finding.text


def test_no_compiler_and_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "cpp_compiler", lambda: None)
    monkeypatch.setattr(doctor.importlib.metadata, "entry_points", lambda **_: ())
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    assert [f.state for check in (doctor._compiler, doctor._entry_point, doctor._models) for f in check()] == [
        "fail",
        "note",
        "note",
    ]


def test_a_check_that_crashes_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sys, "executable", "/bin/false")
    assert doctor._run()[0].state == "fail"

    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 1)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    assert "nothing came back" in doctor._run()[0].text


def test_kernels_that_are_not_made_or_wrong_are_seen(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = torch.compile
    monkeypatch.setattr(doctor.torch, "compile", lambda fn, **_: fn)
    with pytest.raises(HelionError, match="no kernel was made"):
        tiny_run(device)
    monkeypatch.setattr(doctor.torch, "compile", lambda fn, **more: lambda x: compiled(fn, **more)(x) + 1)
    with pytest.raises(HelionError, match="the result is wrong: it differs from eager by 1.0e[+]00"):
        tiny_run(device)
