from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plyfile import PlyData

from recon.core.errors import InputError, UsageError
from recon.geometry.sh import sh0_to_rgb
from recon.scene.formats.ply import read_ply, write_ply
from recon.scene.gaussians import table_fields
from tests.recon.scene.make import moving_table, table


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_round_trip_is_equal_to_the_bit(tmp_path: Path, degree: int) -> None:
    g = table(50, degree)
    write_ply(g, tmp_path / "a.ply")
    back = read_ply(tmp_path / "a.ply").gaussians
    for name in table_fields():
        assert torch.equal(getattr(back, name), getattr(g, name)), name
    write_ply(back, tmp_path / "b.ply")
    assert (tmp_path / "a.ply").read_bytes() == (tmp_path / "b.ply").read_bytes()


def test_a_foreign_reader_finds_every_value_by_name(tmp_path: Path) -> None:
    g = table(7, 3)
    write_ply(g, tmp_path / "a.ply")
    vertex = PlyData.read(str(tmp_path / "a.ply"))["vertex"]
    names = [p.name for p in vertex.properties]
    rest = [f"f_rest_{i}" for i in range(45)]
    inria = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", *rest, "opacity"]
    assert names == [*inria, "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
    for k, name in enumerate(("x", "y", "z")):
        np.testing.assert_array_equal(vertex[name], g.means[:, k])
        np.testing.assert_array_equal(vertex[f"scale_{k}"], g.log_scales[:, k])
        np.testing.assert_array_equal(vertex[f"f_dc_{k}"], g.sh[:, 0, k])
        for band in range(15):  # channel-major: all red first
            np.testing.assert_array_equal(vertex[f"f_rest_{15 * k + band}"], g.sh[:, 1 + band, k])
    for k in range(4):
        np.testing.assert_array_equal(vertex[f"rot_{k}"], g.quats[:, k])
    np.testing.assert_array_equal(vertex["opacity"], g.logit_opacities)


def splats() -> Path:
    """Files of other tools, when the checkout has them beside it (RECON_SPLATS overrides)."""
    return Path(os.environ.get("RECON_SPLATS", Path(__file__).parents[5] / "shared" / "splats"))


FOREIGN = splats() / "test-splat.3-points-from-train.ply"


@pytest.mark.skipif(not FOREIGN.is_file(), reason="no foreign splat files here; RECON_SPLATS names their folder")
def test_reads_what_another_tool_wrote() -> None:
    g = read_ply(FOREIGN).gaussians.validate()
    vertex = PlyData.read(str(FOREIGN))["vertex"]
    assert (len(g), g.degree) == (3, 3)
    np.testing.assert_array_equal(g.means, np.stack([vertex[name] for name in "xyz"], 1))
    np.testing.assert_array_equal(g.sh[:, 6, 1], vertex["f_rest_20"])
    # The same three Gaussians as 32-byte .splat records: position, scale f32; colour, rotation bytes. They are sorted
    # by size there, so match by position.
    record = np.dtype([("mean", "<f4", 3), ("scale", "<f4", 3), ("rgba", "u1", 4), ("rot", "u1", 4)])
    theirs = np.frombuffer(FOREIGN.with_suffix(".splat").read_bytes(), record)
    for i in range(3):
        row = theirs[np.abs(theirs["mean"] - g.means[i].numpy()).sum(1).argmin()]
        np.testing.assert_allclose(row["mean"], g.means[i], atol=1e-5)
        np.testing.assert_allclose(row["scale"], torch.exp(g.log_scales[i]), rtol=1e-4)
        rgb = np.clip(sh0_to_rgb(g.sh[i, 0].numpy()), 0, 1) * 255
        np.testing.assert_allclose(row["rgba"][:3], rgb, atol=1.01)
        assert abs(row["rgba"][3] - 255 * float(torch.sigmoid(g.logit_opacities[i]))) <= 1.01


@pytest.mark.skipif(not FOREIGN.is_file(), reason="no foreign splat files here; RECON_SPLATS names their folder")
def test_a_compressed_ply_is_not_taken_for_a_plain_one() -> None:
    with pytest.raises(InputError, match="its only element must be 'vertex', found 'chunk'"):
        read_ply(splats() / "biker.compressed.ply")


def test_normals_may_be_absent_and_further_columns_are_skipped(tmp_path: Path) -> None:
    g = table(5, 1)
    write_ply(g, tmp_path / "a.ply")
    vertex = PlyData.read(str(tmp_path / "a.ply"))["vertex"].data
    names = [name for name in vertex.dtype.names if name not in ("nx", "ny", "nz")]
    row = np.dtype([("id", "<u2"), *((name, "<f4") for name in reversed(names)), ("weight", "<f8")])
    other = np.zeros(5, row)
    for name in names:
        other[name] = vertex[name]
    words = {"<u2": "ushort", "<f4": "float", "<f8": "double"}
    lines = ["ply", "format binary_little_endian 1.0", "comment by hand", "element vertex 5"]
    lines += [f"property {words[row[name].str]} {name}" for name in row.names or ()]
    (tmp_path / "b.ply").write_bytes("\r\n".join([*lines, "end_header", ""]).encode() + other.tobytes())
    back = read_ply(tmp_path / "b.ply").gaussians
    for name in table_fields():
        assert torch.equal(getattr(back, name), getattr(g, name)), name


def test_rows_that_are_not_finite_are_dropped_and_counted(tmp_path: Path) -> None:
    g = table(6, 1)
    write_ply(g, tmp_path / "a.ply")
    data = bytearray((tmp_path / "a.ply").read_bytes())
    row = 4 * (17 + 9)
    start = len(data) - 6 * row
    data[start + 2 * row : start + 2 * row + 4] = np.float32(np.nan).tobytes()
    data[start + 5 * row - 4 : start + 5 * row] = np.float32(np.inf).tobytes()
    (tmp_path / "a.ply").write_bytes(data)
    with pytest.warns(UserWarning, match="dropped 2 of 6 Gaussians that are not finite"):
        back = read_ply(tmp_path / "a.ply").gaussians
    assert torch.equal(back.means, g.means[[0, 1, 3, 5]])


def test_moving_gaussians_are_not_written_as_if_they_stood(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="know no motion"):
        write_ply(moving_table(), tmp_path / "a.ply")
    assert not list(tmp_path.iterdir())


BINARY = "format binary_little_endian 1.0"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("element vertex 4", "element vertex 5", "declares 5 Gaussians of 104 bytes, it holds 4"),
        ("element vertex 4", "element vertex 3", "declares 3 Gaussians of 104 bytes, it holds 4"),
        ("element vertex 4", "element vertex 999999999999", "declares 999999999999 Gaussians"),
        ("element vertex 4", "element vertex 9999999999999", "number of Gaussians is '9999999999999'"),
        ("element vertex 4", "element vertex -4", "number of Gaussians is '-4'"),
        ("element vertex 4", "element vertex 0", "it declares no Gaussians|holds"),
        ("element vertex 4", "element face 4", "only element must be 'vertex', found 'face'"),
        ("element vertex 4", "element vertex 4\nelement face 0", "found 'face'"),
        ("element vertex 4", "element vertex 4\nelement vertex 4", "only element must be 'vertex'"),
        (BINARY, "format ascii 1.0", "its data are ascii, not binary_little_endian"),
        (BINARY, "format binary_big_endian 1.0", "binary_big_endian, not"),
        (BINARY, "comment none", "of no stated format"),
        ("property float opacity", "property int opacity", "property 'opacity' is not float32"),
        ("property float opacity", "property double opacity", "declares 4 Gaussians of 108 bytes"),
        ("property float opacity", "property half opacity", "'half opacity' is not a single number"),
        ("property float opacity", "property list uchar int opacity", "not a single number"),
        ("property float opacity", "property float opacita", "lacks the properties opacity"),
        ("property float opacity", "property float x", "property 'x' comes twice"),
        ("property float f_rest_8", "property float f_rest_9", "lacks the properties f_rest_8"),
        ("property float f_rest_8", "property float g_rest_8", "8 f_rest properties"),
        ("property float x", "propperty float x", "header has the line 'propperty float x'"),
        ("ply\n", "plx\n", "does not start with 'ply'"),
        ("end_header\n", "end_headr\n", "header does not end within 64 KiB"),
        ("property float nx", "property float n\u00e9", "header is not ASCII"),
    ],
)
def test_lying_headers_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "a.ply"
    write_ply(table(4, 1), path)
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode("latin-1"), 1))
    with pytest.raises(InputError, match=message) as caught:
        read_ply(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_ply(tmp_path / "none.ply")
    with pytest.raises(InputError, match="not a Gaussian PLY file"):
        read_ply(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_give_a_clear_error_or_a_valid_table(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.ply"
    write_ply(table(3, 0), path)
    good = path.read_bytes()
    end = len(good) if data.draw(st.booleans()) else data.draw(st.integers(0, len(good)))
    damaged = bytearray(good[:end])
    for _ in range(data.draw(st.integers(0, 6))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows that became NaN
            table_read = read_ply(path).gaussians
    except InputError as error:
        assert "\n" not in str(error)
    else:
        table_read.validate()
