"""Every format: round trips within its stated steps, foreign files and foreign readers."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recon.core.errors import UsageError
from recon.geometry.quaternion import quat_to_matrix
from recon.geometry.sh import eval_sh
from recon.scene.formats.axes import KNOWN, rotation, turned
from recon.scene.formats.compressed_ply import read_compressed_ply, write_compressed_ply
from recon.scene.formats.ksplat import read_ksplat
from recon.scene.formats.ply import read_ply, write_ply
from recon.scene.formats.registry import FORMATS, format_of, read_splats
from recon.scene.formats.splat import read_splat, write_splat
from recon.scene.formats.spz import read_spz, write_spz
from recon.scene.gaussians import Gaussians, table_fields
from tests.recon.scene.formats.handmade import ksplat, ksplat_means
from tests.recon.scene.make import moving_table, table

SPLATS = Path(os.environ.get("RECON_SPLATS", Path(__file__).parents[5] / "shared" / "splats"))
foreign = pytest.mark.skipif(not SPLATS.is_dir(), reason="no foreign splat files; RECON_SPLATS names their folder")


def tame(count: int = 700, degree: int = 3) -> Gaussians:
    """Colours and bands within what byte formats can say."""
    g = table(count, degree, seed=4)
    return replace(g, sh=torch.tanh(g.sh) * 0.9)


def sorted_by_place(g: Gaussians) -> Gaussians:
    """Rows in the order of their x."""
    return g.select(g.means[:, 0].argsort())


def apart(a: Gaussians, b: Gaussians) -> dict[str, float]:
    """Largest differences of what two tables of the same order say."""
    qa, qb = torch.nn.functional.normalize(a.quats), torch.nn.functional.normalize(b.quats)
    qb = torch.where((qa * qb).sum(1, keepdim=True) < 0, -qb, qb)
    return {
        "means": float((a.means - b.means).abs().max()),
        "log_scales": float((a.log_scales - b.log_scales).abs().max()),
        "quats": float((qa - qb).abs().max()),
        "opacity": float((a.logit_opacities.sigmoid() - b.logit_opacities.sigmoid()).abs().max()),
        "sh0": float((a.sh[:, 0] - b.sh[:, 0]).abs().max()),
    }


@pytest.mark.parametrize("version", [2, 3, 4])
def test_spz_keeps_everything_within_its_steps(tmp_path: Path, version: int) -> None:
    if version == 4:
        pytest.importorskip("zstandard")
    g = tame()
    write_spz(g, tmp_path / "a.spz", version)
    back = read_spz(tmp_path / "a.spz")
    far = apart(g, back.gaussians)
    assert back.axes == "rub"
    assert far["means"] <= 0.5 / 4096 + 1e-6 and far["log_scales"] <= 1 / 32 + 1e-5
    # A small w of version 2 is the root of what x, y and z leave, and takes their rounding badly.
    assert far["quats"] <= (0.12 if version == 2 else 0.0025)
    assert far["opacity"] <= 0.5 / 255 + 1e-3 and far["sh0"] <= 0.5 / 38.25 + 1e-5
    bands = (g.sh - back.gaussians.sh).abs()
    assert float(bands[:, 1:4].max()) <= 1 / 32 + 1 / 128 and float(bands[:, 4:].max()) <= 1 / 16 + 1 / 128
    write_spz(back.gaussians, tmp_path / "b.spz", version)
    again = read_spz(tmp_path / "b.spz").gaussians
    for name in ("means", "log_scales", "logit_opacities", "sh"):
        assert torch.equal(getattr(again, name), getattr(back.gaussians, name)), name


def test_splat_keeps_everything_within_its_steps(tmp_path: Path) -> None:
    g = tame(50, 0)
    write_splat(g, tmp_path / "a.splat")
    far = apart(sorted_by_place(g), sorted_by_place(read_splat(tmp_path / "a.splat").gaussians))
    assert far["means"] == 0 and far["log_scales"] < 1e-6
    assert far["quats"] < 0.012 and far["opacity"] <= 0.5 / 255 + 1e-3 and far["sh0"] <= 0.5 / 255 / 0.282 + 1e-5


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_compressed_ply_keeps_everything_within_its_steps(tmp_path: Path, degree: int) -> None:
    g = tame(700, degree)
    write_compressed_ply(g, tmp_path / "a.ply")
    back = read_compressed_ply(tmp_path / "a.ply").gaussians
    a, b = sorted_by_place(g), sorted_by_place(back)
    extent = float((g.means.max(0).values - g.means.min(0).values).max())
    order = (torch.cdist(g.means, back.means)).argmin(1)
    far = apart(g, back.select(order))
    assert len(a) == len(b) and len(order.unique()) > 0.9 * len(g)
    assert far["means"] <= extent / 1023
    bands = (g.sh[:, 1:].mean(0) - back.sh[:, 1:].mean(0)).abs()
    assert degree == 0 or float(bands.max()) < 1 / 64


@foreign
def test_the_same_gaussians_of_another_tool_in_every_container_are_the_same_to_us() -> None:
    truth = sorted_by_place(read_splats(SPLATS / "minimal.splat")[1].gaussians)
    for name in ("minimal.ksplat", "minimal-v2.spz", "minimal-raw.spz"):
        one, splats = read_splats(SPLATS / name)
        far = apart(truth, sorted_by_place(splats.gaussians.validate()))
        assert far["means"] == 0 and far["log_scales"] < 1 / 32 and far["opacity"] < 0.003, name
        assert one.name == ("ksplat" if name.endswith("ksplat") else "spz")


@foreign
def test_an_spz_and_a_compressed_ply_of_one_scene_agree() -> None:
    pytest.importorskip("zstandard")
    ply = read_splats(SPLATS / "biker.compressed.ply")[1].gaussians
    spz = read_splats(SPLATS / "biker.spz")[1].gaussians
    far = apart(turned(ply, rotation("rub", "rdf")), spz)
    assert len(ply) == len(spz) == 152746
    assert far["means"] < 2e-4 and far["quats"] < 3e-3 and far["opacity"] == 0 and far["sh0"] < 0.0132


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_ksplat_is_read_as_its_layout_says(tmp_path: Path, level: int, degree: int) -> None:
    (tmp_path / "a.ksplat").write_bytes(ksplat(level, degree))
    g = read_ksplat(tmp_path / "a.ksplat").gaussians.validate()
    assert (len(g), g.degree) == (5, degree)
    np.testing.assert_allclose(g.means, ksplat_means(), atol=0 if level == 0 else 1e-4)
    np.testing.assert_allclose(g.log_scales[4].exp(), [0.01, 0.02, 0.04], rtol=1e-3)
    if degree >= 2:  # band 2's numbers are 9..23: five of red, five of green, five of blue
        np.testing.assert_allclose(g.sh[0, 4:9, 1], np.arange(14, 19) / 45.0, atol=0.006)


def test_gsply_reads_our_ply_to_the_bit(tmp_path: Path) -> None:
    gsply = pytest.importorskip("gsply")
    g = tame(300, 2)
    write_ply(g, tmp_path / "a.ply")
    theirs = gsply.plyread(str(tmp_path / "a.ply"))
    np.testing.assert_array_equal(theirs.means, g.means)
    np.testing.assert_array_equal(theirs.quats, g.quats)
    np.testing.assert_array_equal(theirs.sh0, g.sh[:, 0])


@pytest.mark.parametrize("version", [2, 3])
def test_gsply_reads_our_spz_as_we_do(tmp_path: Path, version: int) -> None:
    gsply = pytest.importorskip("gsply")
    write_spz(tame(300, 2), tmp_path / "a.spz", version)
    ours, theirs = read_spz(tmp_path / "a.spz").gaussians, gsply.read_spz(str(tmp_path / "a.spz"))
    np.testing.assert_allclose(theirs.means, ours.means, atol=1e-6)
    np.testing.assert_allclose(theirs.sh0, ours.sh[:, 0], atol=1e-5)
    np.testing.assert_allclose(np.abs(theirs.quats), ours.quats.abs(), atol=1e-3)


@pytest.mark.skipif(shutil.which("splat-transform") is None, reason="splat-transform (Node) is not installed")
@pytest.mark.parametrize("name", ["compressed-ply", "splat", "sog", "spz"])
def test_splat_transform_reads_what_we_write(tmp_path: Path, name: str) -> None:
    one, g = FORMATS[name], tame()
    assert one.write is not None
    path = tmp_path / f"a{one.suffix}"
    one.write(g, path)
    subprocess.run(["splat-transform", "-w", path, tmp_path / "b.ply"], check=True, capture_output=True)
    ours, theirs = one.read(path).gaussians, read_ply(tmp_path / "b.ply").gaussians
    if one.axes:  # it writes PLY files in rdf
        ours = turned(ours, rotation("rdf", one.axes))
    far = apart(theirs, ours.select(torch.cdist(theirs.means, ours.means).argmin(1)))
    assert max(far["means"], far["log_scales"], far["opacity"], far["sh0"]) < 1e-5
    assert far["quats"] < (0.01 if name == "splat" else 1e-5)  # it takes byte 127.5 for zero, we 128


@pytest.mark.parametrize("to", KNOWN)
def test_turning_axes_keeps_the_shape_and_colour_of_every_gaussian(to: str) -> None:
    g = table(30, 3)
    if np.linalg.det(frame(to)) * np.linalg.det(frame("rdf")) < 0:
        with pytest.raises(UsageError, match="mirror image"):
            rotation(to, "rdf")
        return
    turn = torch.from_numpy(rotation(to, "rdf")).float()
    t = turned(g, turn.numpy().astype(np.float64))
    torch.testing.assert_close(shapes(t), turn @ shapes(g) @ turn.T, atol=1e-5, rtol=1e-4)
    look = torch.nn.functional.normalize(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(eval_sh(3, t.sh, look @ turn.T), eval_sh(3, g.sh, look), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(t.means, g.means @ turn.T, atol=0, rtol=0)


def shapes(g: Gaussians) -> torch.Tensor:
    """Covariances [N, 3, 3]."""
    axes = quat_to_matrix(g.quats) * g.log_scales.exp()[:, None]
    return axes @ axes.transpose(1, 2)


def frame(axes: str) -> np.ndarray:
    """Columns x, y, z in right, up, back."""
    letters = {"r": (1, 0, 0), "l": (-1, 0, 0), "u": (0, 1, 0), "d": (0, -1, 0), "b": (0, 0, 1), "f": (0, 0, -1)}
    return np.array([letters[letter] for letter in axes], float).T


def test_turning_there_and_back_keeps_every_bit_of_a_half_turn() -> None:
    g = table(30, 3)
    back = turned(turned(g, rotation("rub", "rdf")), rotation("rdf", "rub"))
    for name in table_fields():
        assert torch.equal(getattr(back, name), getattr(g, name)), name


@pytest.mark.parametrize("name", [one.name for one in FORMATS.values() if one.write is not None])
def test_no_writer_takes_moving_gaussians(tmp_path: Path, name: str) -> None:
    write = FORMATS[name].write
    assert write is not None
    with pytest.raises(UsageError, match="know no motion"):
        write(moving_table(), tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_the_longest_ending_names_the_format() -> None:
    assert format_of(Path("a.compressed.ply")).name == "compressed-ply"
    assert format_of(Path("b.PLY")).name == "ply"
    with pytest.raises(UsageError, match="Known endings"):
        format_of(Path("c.obj"))
