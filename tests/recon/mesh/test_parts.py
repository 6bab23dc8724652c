"""Mass by parts, the gap of known distances, names of folders, and what is said when a package is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import trimesh
from hypothesis import given
from hypothesis import strategies as st

from recon.core.errors import InputError, UnavailableError, UsageError
from recon.geometry.camera import Camera
from recon.geometry.pose import look_at
from recon.mesh.bench import between, box_planes
from recon.mesh.folder import RESERVED, folder_name
from recon.mesh.fuse import open3d
from recon.mesh.hulls import coacd
from recon.mesh.inertia import ASSUMED, mass_properties
from tests.recon.mesh.shapes import ring


def box(low: list[float], high: list[float]) -> trimesh.Trimesh:
    return trimesh.creation.box(bounds=[low, high])


@given(st.floats(0.01, 0.09), st.floats(0.02, 0.3), st.floats(0.02, 0.3))
def test_two_halves_weigh_and_turn_like_the_whole(cut: float, a: float, b: float) -> None:
    whole = box([0, 0, 0], [0.1, a, b])
    opened = trimesh.Trimesh(whole.vertices, whole.faces[:-1], process=False)  # not closed: pieces are taken instead
    parts = [box([0, 0, 0], [cut, a, b]), box([cut, 0, 0], [0.1, a, b])]
    one, two = mass_properties(whole, [], 800.0), mass_properties(opened, parts, 800.0)
    assert (one.volume_from, two.volume_from) == ("surface", "pieces")
    assert np.isclose(one.mass, two.mass) and np.allclose(one.center, two.center)
    # I_xx = m (b^2 + c^2) / 12 of a box
    m = 800 * 0.1 * a * b
    expected = m / 12 * np.array([a**2 + b**2, 0.01 + b**2, 0.01 + a**2])
    assert np.allclose(np.diag(one.inertia), expected) and np.allclose(two.inertia, one.inertia, atol=1e-12)


def test_a_density_that_nobody_declared_is_called_assumed() -> None:
    mass = mass_properties(box([0, 0, 0], [0.1, 0.1, 0.1]), [])
    assert mass.density == ASSUMED and mass.to_json()["density_source"] == "assumed, not measured"
    with pytest.raises(UsageError, match="density"):
        mass_properties(box([0, 0, 0], [0.1, 0.1, 0.1]), [], 1e6)


def test_the_gap_to_a_shifted_piece_is_the_shift() -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    from recon.mesh.gap import Audit

    surface = box([-0.05, -0.05, 0], [0.05, 0.05, 0.1])
    top = surface.face_normals[:, 2] > 0.9
    camera = Camera(
        "above", 64, 64, 500.0, 500.0, 32.0, 32.0, cam_from_world=look_at(np.array([0.0, 0, 1]), np.zeros(3), (0, 1, 0))
    )
    audit = Audit(surface, top, [camera])
    for shift in (0.002, 0.008):
        found = audit.gap([box([-0.05, -0.05, 0], [0.05, 0.05, 0.1 + shift])])
        assert found.p95_mm == pytest.approx(1000 * shift, rel=1e-3)
        assert found.chamfer_mm == pytest.approx(1000 * shift, rel=0.1)  # near its edges the sides are nearer
        assert found.beyond_5mm == (1.0 if shift > 0.005 else 0.0)
    with pytest.raises(InputError, match="no camera has seen"):
        Audit(surface, np.zeros(len(top), bool), [camera])


def test_a_bowl_is_cut_into_pieces_that_leave_it_hollow() -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    pytest.importorskip("coacd")
    from recon.mesh.hulls import convex_pieces

    tray = trimesh.creation.box((0.2, 0.2, 0.01))
    parts = [tray] + [box([x, -0.1, 0], [x + 0.01, 0.1, 0.1]) for x in (-0.1, 0.09)]
    channel = trimesh.Trimesh(*_extruded(parts))
    pieces = convex_pieces(channel, 0.01, 8)
    assert 3 <= len(pieces) <= 8 and all(piece.is_convex for piece in pieces)
    assert sum(piece.volume for piece in pieces) < 1.2 * channel.volume < 0.5 * channel.convex_hull.volume


def _extruded(parts: list[trimesh.Trimesh]) -> tuple[np.ndarray, np.ndarray]:
    """A channel of outer width 0.2 m, 0.1 m high, walls of 1 cm, as one closed surface."""
    outline = np.array(
        [[-0.1, 0], [0.1, 0], [0.1, 0.1], [0.09, 0.1], [0.09, 0.01], [-0.09, 0.01], [-0.09, 0.1], [-0.1, 0.1]]
    )
    cap = np.array([[0, 1, 4], [0, 4, 5], [1, 2, 3], [1, 3, 4], [0, 5, 6], [0, 6, 7]])
    n = len(outline)
    front, back = (np.c_[outline[:, 0], np.full(n, y), outline[:, 1]] for y in (-0.1, 0.1))
    sides = [[[k, (k + 1) % n, n + (k + 1) % n], [k, n + (k + 1) % n, n + k]] for k in range(n)]
    faces = np.concatenate([cap, cap[:, ::-1] + n, np.array(sides).reshape(-1, 3)[:, ::-1]])
    return np.concatenate([front, back]), faces


@pytest.mark.parametrize(("module", "load"), [("open3d", open3d), ("coacd", coacd)])
def test_a_missing_package_names_the_extra(module: str, load, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnavailableError, match=r"pip install 'recon4d\[geom\]'"):
        load()


def test_names_that_are_no_folders_get_numbers() -> None:
    assert folder_name("cup_1.b", 3, set(RESERVED)) == "cup_1.b"
    for name in ("../up", "a b", "", ".hidden", "meshes.json", "Cup", "x" * 65):
        assert folder_name(name, 3, {*RESERVED, "cup"}) == "body-3"


def test_cameras_between_others_look_at_the_target_from_the_same_distance() -> None:
    cameras = list(ring(6).cameras.values())
    made = between(cameras, np.zeros(3))
    assert len(made) >= 6
    for camera in made:
        assert np.linalg.norm(camera.center) == pytest.approx(np.linalg.norm(cameras[0].center))
        assert np.allclose(camera.cam_from_world[2, :3], -camera.center / np.linalg.norm(camera.center))


def test_the_planes_of_a_box_hold_what_is_inside() -> None:
    planes = box_planes(np.array([0.0, -1, 2]), np.array([1.0, 1, 3]))
    inside, outside = np.array([0.5, 0, 2.5, 1]), np.array([0.5, 1.01, 2.5, 1])
    assert (planes @ inside <= 0).all() and (planes @ outside > 0).sum() == 1
