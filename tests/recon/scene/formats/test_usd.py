"""USD: still and moving scenes there and back, and what usd-core itself says of the files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from recon.core.errors import InputError, UnavailableError
from recon.scene.formats.registry import format_of, read_splats
from recon.scene.formats.splats import Splats
from recon.scene.formats.usd import write_usd
from recon.scene.formats.usd_read import read_usd
from tests.recon.scene.formats.test_formats import apart
from tests.recon.scene.formats.test_gltf import shown
from tests.recon.scene.make import scene, table


def whole() -> Splats:
    s = scene()
    return Splats(s.gaussians, "rfu", (), tuple(s.bodies), s.time_range, (0.0, 0.5, 1.0), True)


def test_without_usd_core_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pxr", None)
    for call in (lambda p: write_usd(whole(), p), read_usd):
        with pytest.raises(UnavailableError, match=r"recon4d\[usd\]"):
            call(tmp_path / "a.usdc")


@pytest.mark.parametrize("suffix", [".usdc", ".usda", ".usd"])
@pytest.mark.parametrize("degree", [0, 3])
def test_still_gaussians_keep_every_number_but_for_roots_and_logs(tmp_path: Path, suffix: str, degree: int) -> None:
    pytest.importorskip("pxr")
    g = table(50, degree)
    path = tmp_path / f"a{suffix}"
    assert format_of(path).name == "usd"
    write_usd(Splats(g), path)
    one, back = read_splats(path)
    assert (one.name, back.axes, back.gaussians.degree) == ("usd", "rfu", degree)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert torch.equal(back.gaussians.means, g.means) and torch.equal(back.gaussians.sh, g.sh)
    assert max(apart(g, back.gaussians).values()) < 1e-6


def test_bodies_tracks_and_what_lives_in_time_come_back(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    before = whole()
    write_usd(before, tmp_path / "a.usdc")
    after = read_usd(tmp_path / "a.usdc")
    assert [(b.name, b.kind, b.parent) for b in after.bodies] == [("arm", "link", None), ("cup", "object", "arm")]
    assert after.time_range == before.time_range and after.metric and not after.notes
    for one, other in zip(before.bodies, after.bodies, strict=True):
        assert one.track is not None and other.track is not None
        np.testing.assert_array_equal(one.track.times, other.track.times)
        assert torch.equal(one.track.positions, other.track.positions)
    for t in (0.0, 0.37, 2.0):
        for a, b in zip(shown(before, t), shown(after, t), strict=True):
            torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)


def test_usd_core_finds_the_schema_and_the_samples(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    from pxr import Usd, UsdGeom, UsdVol

    before = whole()
    write_usd(before, tmp_path / "a.usda")
    stage = Usd.Stage.Open(str(tmp_path / "a.usda"))
    assert UsdGeom.GetStageUpAxis(stage) == "Z" and stage.GetTimeCodesPerSecond() == 1.0
    still = UsdVol.ParticleField3DGaussianSplat.Get(stage, "/World/still")
    g = before.gaussians
    np.testing.assert_array_equal(np.array(still.GetPositionsAttr().Get()), g.means[:4])
    q = torch.nn.functional.normalize(g.quats[0], dim=0)
    first = still.GetOrientationsAttr().Get()[0]
    np.testing.assert_allclose([first.GetReal(), *first.GetImaginary()], q, atol=1e-6)
    np.testing.assert_allclose(np.array(still.GetScalesAttr().Get()), g.log_scales[:4].exp(), rtol=1e-6)
    np.testing.assert_allclose(np.array(still.GetOpacitiesAttr().Get()), g.logit_opacities[:4].sigmoid(), rtol=1e-5)
    sh = np.array(still.GetRadianceSphericalHarmonicsCoefficientsAttr().Get()).reshape(4, 9, 3)
    np.testing.assert_array_equal(sh, g.sh[:4])
    arm = UsdGeom.Xformable(stage.GetPrimAtPath("/World/arm"))
    quat, position = before.bodies[0].pose_at(0.0)
    matrix = np.array(arm.ComputeLocalToWorldTransform(0.0))
    np.testing.assert_allclose(matrix[3, :3], position, atol=1e-6)
    assert quat.shape == (4,)
    living = UsdVol.ParticleField3DGaussianSplat.Get(stage, "/World/living")
    assert living.GetPositionsAttr().GetTimeSamples() == [0.0, 0.5, 1.0]
    rows = g.kind == 2
    expected = (g.means + g.velocities * (0.5 - g.time_centers)[:, None])[rows]
    np.testing.assert_allclose(np.array(living.GetPositionsAttr().Get(0.5)), expected, atol=1e-5)


def test_anyones_moving_prim_becomes_a_body(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    from pxr import Usd

    before = replace(whole(), gaussians=whole().gaussians.select(whole().gaussians.kind < 2))
    write_usd(before, tmp_path / "a.usda")
    stage = Usd.Stage.Open(str(tmp_path / "a.usda"))
    for prim in stage.Traverse():
        prim.ClearCustomData()
    stage.GetRootLayer().Export(str(tmp_path / "b.usda"))
    back = read_usd(tmp_path / "b.usda")
    assert [b.name for b in back.bodies] == ["arm"]
    for a, b in zip(shown(before, 0.9), shown(back, 0.9), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_the_4dgs_program_reads_a_still_one(tmp_path: Path) -> None:
    pytest.importorskip("pxr")
    other = pytest.importorskip("fourdgs.usd")
    g = table(20, 0)
    g = replace(g, sh=torch.tanh(g.sh))
    write_usd(Splats(g), tmp_path / "a.usdc")
    found = other.from_usd(str(tmp_path / "a.usdc"))
    np.testing.assert_allclose(found.gaussians.positions, g.means, atol=1e-6)
    np.testing.assert_allclose(found.gaussians.scales, g.log_scales.exp(), rtol=1e-5)
    q = torch.nn.functional.normalize(g.quats)[:, [1, 2, 3, 0]]
    np.testing.assert_allclose(found.gaussians.rotations, q, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("float[] opacities = [", "float[] opacities = [0.5, ", "differ in length"),
        ("ParticleField3DGaussianSplat", "Points", "holds no ParticleField3D"),
        ("point3f[] positions", "point3f[] position_", "has no positions"),
        ("#usda 1.0", "#usda 9.0", "cannot open|version|USD"),
        ('def Xform "World"', 'def Xform "World" (references = @b.usda@)', "refers to other files|USD"),
    ],
)
def test_lying_files_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    pytest.importorskip("pxr")
    path = tmp_path / "a.usda"
    write_usd(Splats(table(3, 0)), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        read_usd(path)
    assert "\n" not in str(caught.value)
