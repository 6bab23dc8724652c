"""SOG: within its stated steps, by foreign readers and from foreign writers."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recon.core.errors import InputError
from recon.scene.formats.codebook import nearest, palette, scalar_codebook
from recon.scene.formats.ply import read_ply, write_ply
from recon.scene.formats.registry import read_splats
from recon.scene.formats.sog import read_sog, write_sog
from recon.scene.formats.webp import decode_webp, encode_webp
from recon.scene.gaussians import Gaussians
from tests.recon.scene.formats.test_formats import apart, tame
from tests.recon.scene.make import table

TRANSFORM = shutil.which("splat-transform")


def matched(g: Gaussians, to: Gaussians) -> Gaussians:
    """The rows of `g` in the order of `to`, by position."""
    order = torch.cdist(to.means, g.means).argmin(1)
    assert len(order.unique()) == len(g)
    return g.select(order)


def check(g: Gaussians, back: Gaussians, share: float = 0.51) -> None:
    """`back` is `g` within that share of the format's steps."""
    back = matched(back, g)
    far = apart(g, back)
    reach = float(g.means.abs().max())
    # ln(|x| + 1) has 65535 steps over its range; a step is (|x| + 1) times as long in space.
    assert far["means"] <= share * 2 * np.log1p(reach) / 65535 * (reach + 1) + 1e-6
    assert far["quats"] <= 0.016 * share and far["opacity"] <= share / 255 + 1e-3
    assert far["log_scales"] <= 0.06 and far["sh0"] <= 0.02


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_everything_is_kept_within_its_steps(tmp_path: Path, degree: int) -> None:
    g = tame(700, degree)
    write_sog(g, tmp_path / "a.sog")
    back = read_sog(tmp_path / "a.sog").gaussians
    assert back.degree == degree
    check(g, back)
    if degree:  # each Gaussian has its own set of bands: only their 256 values round
        assert float((matched(back, g).sh[:, 1:] - g.sh[:, 1:]).abs().max()) < 0.02
    write_sog(g, tmp_path / "b.sog")
    assert (tmp_path / "a.sog").read_bytes() == (tmp_path / "b.sog").read_bytes()


def test_few_values_are_kept_to_the_bit(tmp_path: Path) -> None:
    g = table(80, 1)
    write_sog(g, tmp_path / "a.sog")
    back = matched(read_sog(tmp_path / "a.sog").gaussians, g)
    assert torch.equal(back.log_scales, g.log_scales) and torch.equal(back.sh[:, 0], g.sh[:, 0])


def test_one_gaussian_and_equal_ones(tmp_path: Path) -> None:
    for g in (table(1, 0), table(1, 3).select(torch.zeros(200, dtype=torch.int64))):
        write_sog(g, tmp_path / "a.sog")
        back = read_sog(tmp_path / "a.sog").gaussians
        torch.testing.assert_close(back.means, g.means, atol=1e-6, rtol=1e-6)
        assert torch.equal(back.sh, g.sh)


def test_a_golden_file_has_the_layout_of_the_specification(tmp_path: Path) -> None:
    half = 0.5**0.5
    g = Gaussians.static(
        torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 2.0]]), torch.tensor([[-3.0, -2.0, -1.0], [-3.0, -2.0, -1.0]]),
        torch.tensor([[half, 0.0, -half * 0.999, 0.0], [0.0, 0.0, 0.0, -2.0]]), torch.tensor([0.0, 50.0]),
        torch.tensor([[[0.5, 0.0, -0.5]], [[0.5, 0.0, -0.5]]]),
    )  # fmt: skip
    write_sog(g, tmp_path / "a.sog")
    with zipfile.ZipFile(tmp_path / "a.sog") as archive:
        meta = json.loads(archive.read("meta.json"))
        pictures = {
            n: decode_webp(archive.read(n), 1000, tmp_path, "SOG", n) for n in archive.namelist() if n[-1] == "p"
        }
    assert meta["version"] == 2 and meta["count"] == 2
    np.testing.assert_allclose(meta["means"]["mins"], [-np.log(2), 0, 0])
    np.testing.assert_allclose(meta["means"]["maxs"], [np.log(2), 0, np.log(3)])
    assert meta["scales"]["codebook"][:4] == [-3.0, -2.0, -1.0, -1.0] and len(meta["sh0"]["codebook"]) == 256
    assert pictures["means_u.webp"][0, :2, :3].tolist() == [[255, 0, 0], [0, 0, 255]]
    assert pictures["scales.webp"][0, 0, :3].tolist() == [0, 1, 2]
    assert pictures["sh0.webp"][0, :2].tolist() == [[2, 1, 0, 128], [2, 1, 0, 255]]
    assert pictures["quats.webp"][0, 0].tolist() == [128, 0, 128, 252]  # w left out: x y z = 0, -1/sqrt 2, 0
    assert pictures["quats.webp"][0, 1].tolist() == [128, 128, 128, 255]


@pytest.mark.skipif(TRANSFORM is None, reason="splat-transform (Node) is not installed")
def test_another_tool_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    g = tame(300, 2)
    write_ply(g, tmp_path / "g.ply")
    write_sog(g, tmp_path / "a.sog")
    run = [str(TRANSFORM), "-q", "-w", "-g", "cpu"]
    subprocess.run([*run, tmp_path / "a.sog", tmp_path / "b.ply"], check=True, capture_output=True)
    ours, theirs = read_sog(tmp_path / "a.sog").gaussians, read_ply(tmp_path / "b.ply").gaussians
    far = apart(ours, matched(theirs, ours))
    assert max(far[name] for name in ("means", "log_scales", "sh0", "quats")) < 1e-5 and far["opacity"] < 1e-3
    assert float((ours.sh - matched(theirs, ours).sh).abs().max()) < 1e-5
    subprocess.run([*run, tmp_path / "g.ply", tmp_path / "c.sog"], check=True, capture_output=True)
    check(g, read_sog(tmp_path / "c.sog").gaussians, share=1.01)  # it cuts where we round


def test_a_folder_is_read_as_the_archive_is(tmp_path: Path) -> None:
    write_sog(tame(50, 1), tmp_path / "a.sog")
    with zipfile.ZipFile(tmp_path / "a.sog") as archive:
        (tmp_path / "a").mkdir()
        for name in archive.namelist():
            (tmp_path / "a" / name).write_bytes(archive.read(name))
    whole = read_sog(tmp_path / "a.sog").gaussians
    for path in (tmp_path / "a", tmp_path / "a" / "meta.json"):
        one, splats = read_splats(path)
        assert one.name == "sog" and torch.equal(splats.gaussians.sh, whole.sh)


def changed(path: Path, key: str, value: object) -> None:
    """meta.json of the archive with one entry (section.key) replaced."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(members["meta.json"])
    *sections, last = key.split(".")
    (meta[sections[0]] if sections else meta)[last] = value
    members["meta.json"] = json.dumps(meta).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 1, "its version is 1"),
        ("count", 10**7, "fewer pixels than its 10000000"),
        ("count", 2**60, "declares 1152921504606846976 Gaussians"),
        ("count", True, "declares True Gaussians"),
        ("means.files", ["means_l.webp"], "its means names no 2 files"),
        ("means.files", ["means_l.webp", "../x"], "has no '../x'"),
        ("means.mins", [0, 0], "mins of its means are not 3 numbers"),
        ("scales.codebook", [1e39] * 256, "codebook of its scales are not 256"),
        ("sh0", 3, "has no sh0"),
        ("shN.bands", 4, "has 4 bands|have 4 bands"),
        ("shN.bands", 3, "its palette is 192 pixels wide, not 960"),
        ("quats.files", ["meta.json"], "picture meta.json is not a WebP file"),
    ],
)
def test_lying_headers_are_refused_in_one_line(tmp_path: Path, key: str, value: object, message: str) -> None:
    write_sog(tame(60, 1), tmp_path / "a.sog")
    changed(tmp_path / "a.sog", key, value)
    with pytest.raises(InputError, match=message) as caught:
        read_sog(tmp_path / "a.sog")
    assert "\n" not in str(caught.value)


def test_a_picture_that_claims_too_much_is_not_decoded() -> None:
    bomb = encode_webp(np.zeros((4000, 4000, 3), np.uint8))
    with pytest.raises(InputError, match="declares 4000x4000 pixels"):
        decode_webp(bomb, 1032 * len(bomb), Path("a.sog"), "SOG", "x")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(1, 3), st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_webp_keeps_every_byte(tmp_path: Path, channels: int, height: int, width: int, seed: int) -> None:
    shape = (height, width, 3 if channels < 3 else 4)
    picture = np.random.default_rng(seed).integers(0, 2 if channels == 1 else 256, shape, dtype=np.uint8)
    back = decode_webp(encode_webp(picture), 3600, tmp_path, "SOG", "x")
    shown = back[:, :, 3] > 0  # older OpenCVs forget the colour of what is fully transparent
    np.testing.assert_array_equal(back[shown][:, : shape[2]], picture[shown])


def test_a_codebook_lies_near_its_values() -> None:
    values = np.random.default_rng(0).normal(size=20000).astype(np.float32)
    book = scalar_codebook(values)
    error = values - book[nearest(book, values)]
    assert np.abs(error).max() < 0.04 and error.std() < 0.01  # 256 even steps over its 8 units: 0.009


def test_a_palette_lies_near_its_rows() -> None:
    generator = np.random.default_rng(0)
    true = generator.normal(size=(300, 9)).astype(np.float32)
    rows = np.repeat(true, 10, 0) + generator.normal(scale=0.01, size=(3000, 9)).astype(np.float32)
    centres, label = palette(rows, 2000)
    assert len(centres) <= 2000 and np.abs(centres[label] - rows).mean() < 0.01
    few, label = palette(rows, 200)
    assert len(few) == 200 and np.abs(few[label] - rows).std() < 0.7


def test_the_opacity_zero_keeps_no_row_out(tmp_path: Path) -> None:
    g = tame(40, 0)
    write_sog(replace(g, logit_opacities=torch.full((40,), -30.0)), tmp_path / "a.sog")
    assert len(read_sog(tmp_path / "a.sog").gaussians) == 40
