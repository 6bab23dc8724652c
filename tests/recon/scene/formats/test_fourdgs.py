""".4dgs: moving scenes there and back, and what the format's own program says of them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recon.core.errors import InputError
from recon.scene.formats.fourdgs import write_fourdgs
from recon.scene.formats.fourdgs_read import read_fourdgs
from recon.scene.formats.fourdgs_records import Fields, stream
from recon.scene.formats.ply import write_ply
from recon.scene.formats.registry import read_splats
from recon.scene.formats.splats import Splats
from recon.scene.gaussians import RESIDUAL
from tests.recon.scene.formats.test_formats import tame
from tests.recon.scene.formats.test_gltf import shown
from tests.recon.scene.make import scene

PROGRAM = shutil.which("fourdgs") or shutil.which("4dgs")


def whole(axes: str = "rfu") -> Splats:
    s = scene()
    sh = torch.tanh(s.gaussians.sh) * 0.9
    return Splats(replace(s.gaussians, sh=sh), axes, (), tuple(s.bodies), s.time_range, metric=True)


@pytest.mark.parametrize("axes", ["rfu", "rdf", "rub", "luf", "flu", ""])
def test_a_moving_scene_comes_back_with_its_axes(tmp_path: Path, axes: str) -> None:
    before = whole(axes)
    write_fourdgs(before, tmp_path / "a.4dgs")
    one, after = read_splats(tmp_path / "a.4dgs")
    assert (one.name, after.axes, after.time_range) == ("4dgs", axes, before.time_range)
    assert [(b.name, b.id, b.kind, b.parent) for b in after.bodies] == [
        (b.name, b.id, b.kind, b.parent) for b in before.bodies
    ]
    assert after.metric == bool(axes) and not after.notes
    for t in (0.0, 0.9, 2.0):
        for a, b, far in zip(shown(before, t), shown(after, t), (2e-5, 2e-3, 5e-4, 0.04), strict=True):
            torch.testing.assert_close(a, b, atol=far, rtol=1e-3)
    track = after.bodies[0].track
    assert track is not None and before.bodies[0].track is not None
    np.testing.assert_array_equal(track.times, before.bodies[0].track.times)
    assert torch.equal(track.positions, before.bodies[0].track.positions)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(-1e3, 1e3), st.floats(-20, 6), st.floats(-6, 3), st.integers(0, 3))
def test_any_clock_extent_and_duration_is_kept(
    tmp_path: Path, start: float, size: float, life: float, degree: int
) -> None:
    g = tame(30, degree)
    living = torch.arange(30) % 2 == 0
    g = replace(
        g, means=g.means * 2.0**size, kind=torch.where(living, RESIDUAL, 0).to(torch.uint8),
        time_centers=torch.where(living, start + 0.5, 0.0), log_durations=torch.where(living, life, 0.0),
        velocities=torch.where(living[:, None], g.means * 3, 0.0),
    )  # fmt: skip
    write_fourdgs(Splats(g, "", (), (), (start, start + 1.0)), tmp_path / "a.4dgs")
    back = read_fourdgs(tmp_path / "a.4dgs").gaussians
    order = [int((back.sh[:, 0] - row).abs().sum(1).argmin()) for row in g.sh[:, 0]]
    back = back.select(torch.tensor(order))
    assert torch.equal(back.kind, g.kind)
    torch.testing.assert_close(back.means, g.means, atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(back.velocities, g.velocities, atol=6e-4, rtol=1e-6)
    torch.testing.assert_close(back.time_centers, g.time_centers, atol=1e-4, rtol=1e-6)
    torch.testing.assert_close(back.log_durations, g.log_durations, atol=1e-3, rtol=0)


@given(
    st.lists(st.lists(st.integers(-(2**30), 2**30), min_size=3, max_size=3), min_size=1, max_size=40),
    st.integers(0, 30),
)
def test_a_stream_keeps_every_whole_number(rows: list[list[int]], shift: int) -> None:
    values = np.array(rows, np.int64) >> shift
    fields = Fields(Path("a"), stream(0, values))
    attribute, back = fields.stream(None, len(values), 3)
    assert attribute == 0 and fields.left == 0
    np.testing.assert_array_equal(back, values)


@pytest.mark.skipif(PROGRAM is None, reason="fourdgs is not installed")
def test_the_formats_own_validator_finds_nothing(tmp_path: Path) -> None:
    for k, splats in enumerate((whole(), Splats(tame(50, 0)))):
        write_fourdgs(splats, tmp_path / f"{k}.4dgs")
        done = subprocess.run([str(PROGRAM), "validate", tmp_path / f"{k}.4dgs"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROGRAM is None, reason="fourdgs is not installed")
def test_a_sequence_of_ours_becomes_one_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "seq").mkdir()
    for k in range(2):
        g = tame(20, 0)
        write_ply(replace(g, means=g.means + k), tmp_path / "seq" / f"{k:06d}.ply")
    command = [str(PROGRAM), "convert", tmp_path / "seq", "-o", tmp_path / "a.4dgs", "--fps", "2", "--profile", "fine"]
    subprocess.run(command, check=True, capture_output=True)
    found = read_fourdgs(tmp_path / "a.4dgs")
    assert "first window" in " ".join(found.notes)
    back = found.gaussians.select(torch.cdist(tame(20, 0).means, found.gaussians.means).argmin(1))
    assert len(found.gaussians) == 20
    torch.testing.assert_close(back.means, tame(20, 0).means, atol=0.01, rtol=0)
    torch.testing.assert_close(back.log_scales, tame(20, 0).log_scales, atol=0.02, rtol=0)


def test_the_formats_own_reader_sees_the_same(tmp_path: Path) -> None:
    stream_reader = pytest.importorskip("fourdgs.stream_reader")
    before = whole()
    write_fourdgs(before, tmp_path / "a.4dgs")
    ours = read_fourdgs(tmp_path / "a.4dgs").gaussians
    theirs = stream_reader.read(str(tmp_path / "a.4dgs"))
    g = theirs.gaussians
    order = np.array([np.abs(g.positions - row).sum(1).argmin() for row in ours.means.numpy()])
    np.testing.assert_allclose(g.positions[order], ours.means, atol=1e-6)
    np.testing.assert_allclose(np.log(g.scales[order]), ours.log_scales, atol=1e-5)
    np.testing.assert_allclose(g.rotations[order][:, [3, 0, 1, 2]], ours.quats, atol=1e-4)
    np.testing.assert_allclose(g.colors[order, 3], ours.logit_opacities.sigmoid(), atol=1e-5)
    living = (ours.kind == RESIDUAL).numpy()
    np.testing.assert_allclose(g.motions[order][living], ours.velocities[living], atol=1e-6)
    np.testing.assert_allclose(g.mu_t[order][living], ours.time_centers[living], atol=1e-6)
    np.testing.assert_allclose(np.log(g.sigma_t[order][living]), ours.log_durations[living], atol=1e-5)
    np.testing.assert_array_equal(g.object_id[order], ours.object_id)


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (8 + 9 + 4 + 7 + 4 + 5 + 8, "<Q", 10**12, "declares 1000000000000 Gaussians"),
        (8 + 9 + 4 + 7 + 4 + 5 + 8, "<Q", 13, "declares 13 Gaussians and holds 12"),
        (8 + 9 + 4 + 7 + 4 + 5 + 8, "<Q", 3, "a chunk declares 12 Gaussians, 3 are left"),
        (8 + 1, "<Q", 2**63, "does not fit into it"),
        (0, "<B", 1, "magic"),
    ],
)
def test_lying_headers_are_refused_in_one_line(
    tmp_path: Path, offset: int, layout: str, value: int, message: str
) -> None:
    path = tmp_path / "a.4dgs"
    write_fourdgs(whole(), path)
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, offset, value)
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read_fourdgs(path)
    assert "\n" not in str(caught.value)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError):
        read_fourdgs(path)
