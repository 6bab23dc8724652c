"""`recon --help | info | render | doctor` as typed at a prompt."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from recon.core.files import read_json, write_json
from tests.cli.commands import here, process

HELP_SECONDS = 0.6  # of CPU time


def test_help_is_quick_and_opens_with_two_examples() -> None:
    runs = [process("--help") for _ in range(3)]
    assert all(run.code == 0 for run in runs)
    assert runs[0].output.count("  recon ") >= 2
    assert all(name in runs[0].output for name in ("build", "render", "info", "doctor"))
    assert min(run.seconds for run in runs) < HELP_SECONDS


@pytest.mark.parametrize("command", ["build", "render", "mesh", "doctor", "info", "check", "calibrate"])
def test_every_command_has_help_and_takes_a_device_where_it_uses_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = here(capsys, command, "--help")
    assert run.code == 0
    uses_one = command in ("build", "render", "mesh", "doctor")
    assert ("--device" in run.output, "--backend" in run.output) == (uses_one, uses_one)


def test_an_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    run = here(capsys, "build", "--video", "cams")
    assert run.code == 2
    assert "--videos" in run.output + run.errors  # what was probably meant


def test_info_shows_what_is_in_a_scene(scene_folder: Path) -> None:
    run = process("info", scene_folder)
    assert run.code == 0, run.errors
    shown = run.output + run.errors
    for piece in ("1 static", "0.000 to 1.000 s", "left, right", "metres"):
        assert piece in shown


def test_info_finds_a_scene_by_name(
    scene_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenes").mkdir()
    scene_folder.rename(tmp_path / "scenes" / "blob")
    monkeypatch.chdir(tmp_path)
    run = here(capsys, "info", "blob")
    assert run.code == 0 and "1 static" in run.output + run.errors


def test_info_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = here(capsys, "info", tmp_path / "nothing")
    assert run.code == 3
    assert "nothing" in run.errors and "there is no scene" in run.errors


def test_render_writes_the_documented_files(scene_folder: Path, tmp_path: Path) -> None:
    run = process("render", scene_folder, "--out", tmp_path / "out", "--device", "cpu")
    assert run.code == 0, run.errors
    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*"))
    pictures = ["left/000000", "left/000001", "left/000002", "right/000000", "right/000001"]
    expected = [f"{name}.{suffix}" for name in pictures for suffix in ("npy", "png")]
    assert files == sorted([*expected, "times.json"])
    times = read_json(tmp_path / "out" / "times.json")
    assert {name: times[name] for name in ("left", "right")} == {"left": [0.0, 0.5, 1.0], "right": [0.25, 0.75]}
    picture = cv2.imread(str(tmp_path / "out" / "left" / "000000.png"))
    assert picture is not None and picture.shape == (48, 64, 3)
    assert picture[24, 32].min() > 150 and picture[2, 2].max() == 0


def test_depth_is_metres_and_nan_where_alpha_is_under_one_half(
    scene_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = here(capsys, "render", scene_folder, "--out", tmp_path / "out", "--cams", "left,right", "--times", "0.5")
    assert run.code == 0, run.errors
    for name in ("left", "right"):
        depth = np.load(tmp_path / "out" / name / "000000.npy", allow_pickle=False)
        assert depth.dtype == np.float32 and depth.shape == (48, 64)
        assert depth[24, 32] == pytest.approx(2.0, abs=1e-3)
        assert np.isnan(depth[2, 2])
        # alpha = exp(-r^2 / (2 s^2)) falls to 1/2 at r = 1.1774 s, with s = 60 * 0.1 / 2 pixels (and 0.3 px^2 of blur)
        radius = 1.1774 * np.sqrt((60.0 * 0.1 / 2.0) ** 2 + 0.3)
        assert np.isfinite(depth).sum() == pytest.approx(np.pi * radius**2, rel=0.15)
    assert read_json(tmp_path / "out" / "times.json")["left"] == [0.5]


def test_render_takes_cameras_of_another_rig_in_the_rigs_world(
    scene_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = read_json(scene_folder / "rig.json")
    rig["cameras"] = {"new": rig["cameras"]["right"]}
    write_json(tmp_path / "other.json", rig)
    run = here(
        capsys, "render", scene_folder, "--rig", tmp_path / "other.json", "--times", "0,1", "--out", tmp_path / "out"
    )
    assert run.code == 0, run.errors
    assert sorted(p.name for p in (tmp_path / "out" / "new").glob("*.png")) == ["000000.png", "000001.png"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--cams", "lift"], 3, ["'lift'", "Did you mean 'left'?"]),
        (["--times", "0,soon"], 2, ["--times", "soon"]),
        (["--times", "nan"], 2, ["--times"]),
        (["--device", "gpu"], 2, ["unknown device 'gpu'", "Known"]),
        (["--rig", "/no/such/rig.json"], 3, ["/no/such/rig.json", "no such file"]),
    ],
)
def test_render_refuses_what_it_cannot_draw(
    scene_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: list[str],
) -> None:
    run = here(capsys, "render", scene_folder, "--out", tmp_path / "out", *arguments)
    assert run.code == code
    assert all(word in run.errors for word in words), run.errors
    assert not list((tmp_path / "out").rglob("*.png"))


def test_doctor_prints_one_json_object() -> None:
    run = process("doctor", "--device", "cpu", "--json")
    assert run.code == 0, run.errors
    assert json.loads(run.output)["ok"] is True
    assert run.errors == ""
