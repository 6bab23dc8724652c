from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from recon.geometry.quaternion import quat_to_matrix
from recon.scene.folder import save_scene
from recon.scene.formats.axes import rotation
from recon.scene.formats.ply import read_ply, write_ply
from recon.scene.formats.registry import read_splats
from recon.scene.formats.spz import read_spz
from tests.cli.commands import here
from tests.recon.scene.make import scene, table


def test_convert_turns_axes_and_says_what_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = table(20, 1)
    write_ply(g, tmp_path / "a.ply")
    done = here(capsys, "convert", tmp_path / "a.ply", tmp_path / "a.spz", "--console", "json")
    assert done.code == 0, done.errors
    assert "taken as rdf" in done.errors and "as spz prescribes" in done.errors and "1/255" in done.errors
    np.testing.assert_allclose(
        read_spz(tmp_path / "a.spz").gaussians.means, g.means * torch.tensor([1, -1, -1]), atol=2e-4
    )


def test_export_freezes_one_instant_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    s = scene()
    save_scene(s, tmp_path / "lab")
    done = here(capsys, "export", tmp_path / "lab", "--to", "ply", "--out", tmp_path / "x" / "a.ply", "--time", "0.5",
                "--console", "json")  # fmt: skip
    assert done.code == 0, done.errors
    for text in ("motion: frozen at 0.500 s", "bodies: arm, cup", "2 cameras", "kept in rfu"):
        assert text in done.errors
    assert torch.equal(read_ply(tmp_path / "x" / "a.ply").gaussians.means, s.frozen(0.5).means)


def test_a_sequence_is_one_file_per_frame_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    s = scene()
    save_scene(s, tmp_path / "lab")
    done = here(
        capsys, "export", tmp_path / "lab", "--to", "ply-sequence", "--out", tmp_path / "seq", "--console", "json"
    )
    assert done.code == 0, done.errors
    assert sorted(p.name for p in (tmp_path / "seq").iterdir()) == [
        *(f"{k:06d}.ply" for k in range(3)), "timestamps.csv",
    ]  # fmt: skip
    assert (tmp_path / "seq" / "timestamps.csv").read_text().splitlines()[2] == "000001.ply,0.5"
    assert torch.equal(read_ply(tmp_path / "seq" / "000002.ply").gaussians.means, s.frozen(1.0).means)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--to", "obj"), "no format is called 'obj'"),
        (("--to", "ksplat"), "are read, not written"),
        (("--to", "spz", "--axes", "rfu"), "by definition"),
        (("--to", "ply", "--axes", "xyz"), "no axes are called 'xyz'"),
    ],
)
def test_wrong_wishes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    save_scene(scene(), tmp_path / "lab")
    done = here(capsys, "export", tmp_path / "lab", "--out", tmp_path / "a", *arguments, "--console", "json")
    assert done.code == 2 and text in done.text
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("name", "suffix"), [("gltf", "glb"), ("usd", "usdc"), ("4dgs", "4dgs")])
def test_a_moving_scene_keeps_its_bodies_and_what_it_cannot_keep_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, suffix: str
) -> None:
    if name == "usd":
        pytest.importorskip("pxr")
    s = scene()
    save_scene(s, tmp_path / "lab")
    path = tmp_path / f"a.{suffix}"
    done = here(capsys, "export", tmp_path / "lab", "--to", name, "--out", path, "--console", "json")
    assert done.code == 0, done.errors
    assert ("what lives in time only: as it is at 0.000 s" in done.errors) == (name == "gltf")
    one, back = read_splats(path)
    assert one.name == name and [body.name for body in back.bodies] == ["arm", "cup"] and back.metric
    turn = rotation(back.axes, "rfu")
    for body, other in zip(s.bodies, back.bodies, strict=True):  # world from body, in the file's axes
        quat, position = body.pose_at(0.7)
        theirs, there = other.pose_at(0.7)
        torch.testing.assert_close(there, torch.from_numpy(turn).float() @ position, atol=1e-5, rtol=1e-5)
        ours = turn @ quat_to_matrix(quat).numpy() @ turn.T
        np.testing.assert_allclose(quat_to_matrix(theirs), ours, atol=1e-5)
    done = here(capsys, "convert", path, tmp_path / "b.4dgs", "--console", "json")
    assert done.code == 0, done.errors
    assert [body.name for body in read_splats(tmp_path / "b.4dgs")[1].bodies] == ["arm", "cup"]
    done = here(capsys, "convert", path, tmp_path / "c.ply", "--console", "json")
    assert done.code == 0 and "motion: frozen at 0.000 s" in done.errors


def test_a_data_set_needs_the_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_scene(scene(), tmp_path / "lab")
    done = here(capsys, "export", tmp_path / "lab", "--to", "colmap", "--out", tmp_path / "a", "--console", "json")
    assert done.code == 2 and "--videos" in done.text
