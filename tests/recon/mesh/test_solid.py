"""Bodies of known shape come back: surface, unseen sides, pieces, mass; and the command writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import trimesh

from recon.config import InfoConfig, MeshConfig
from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.events import Message
from recon.info import info
from recon.mesh.inertia import mass_properties
from recon.mesh.solid import Solid, SolidSettings, body_solid
from recon.meshes import mesh
from recon.scene.folder import save_scene
from tests.recon.mesh.shapes import cube, with_body

pytest.importorskip("open3d", exc_type=ImportError)
pytest.importorskip("coacd")
SIDE = 0.06


@cache
def solid() -> Solid:
    scene = with_body(cube(SIDE))
    return body_solid(scene, scene.bodies[0], SolidSettings())


def distances(solid: Solid, faces: np.ndarray) -> np.ndarray:
    """m, from random points of those faces to the true cube."""
    points = trimesh.sample.sample_surface(
        solid.surface, 4000, face_weight=np.where(faces, solid.surface.area_faces, 0), seed=0
    )[0]
    outside = np.abs(points - [0, 0, SIDE / 2]) - SIDE / 2
    return np.abs(np.where((outside <= 0).all(1), outside.max(1), np.linalg.norm(np.maximum(outside, 0), axis=1)))


def test_the_surface_of_a_cube_is_found_to_half_a_voxel() -> None:
    found = solid()
    assert found.surface.is_watertight and found.surface.volume == pytest.approx(SIDE**3, rel=0.1)
    assert 1000 * np.percentile(distances(found, found.seen), 95) < 1.5
    assert 1000 * distances(found, np.ones_like(found.seen)).max() < 3.0


def test_the_side_it_stands_on_is_never_seen() -> None:
    found = solid()
    assert found.never_seen == pytest.approx(1 / 6, abs=0.03)
    unseen = found.surface.face_normals[~found.seen]
    areas = found.surface.area_faces[~found.seen]
    assert areas[unseen[:, 2] < -0.9].sum() > 0.8 * areas.sum()


def test_a_cube_is_one_convex_piece_close_to_what_is_seen() -> None:
    found = solid()
    assert len(found.pieces) == 1 and found.pieces[0].is_convex
    assert found.gap.p95_mm < 3.0 and found.gap.beyond_5mm < 0.01 and found.spread_mm < 3.0


def test_its_mass_is_that_of_the_declared_density() -> None:
    mass = mass_properties(solid().surface, solid().pieces, 500.0)
    assert mass.declared and mass.mass == pytest.approx(500 * SIDE**3, rel=0.1)
    assert np.allclose(mass.center, [0, 0, SIDE / 2], atol=2e-3)
    # I = m a^2 / 6
    assert np.allclose(np.diag(mass.inertia), mass.mass * SIDE**2 / 6, rtol=0.12)


def test_the_command_writes_what_info_then_tells(tmp_path: Path) -> None:
    scene = with_body(cube(0.03), "a/b", still=True)
    save_scene(scene, tmp_path / "scene")
    settings = MeshConfig(tmp_path / "scene", only="a/b", voxel=0.005, densities={"a/b": 700.0}, console="plain")
    list(mesh(settings))
    folder = tmp_path / "scene" / "bodies"
    (entry,) = json.loads((folder / "meshes.json").read_text())["bodies"]
    assert entry["name"] == "a/b" and entry["folder"] == "body-0" and entry["density_source"].startswith("declared")
    inertia = json.loads((folder / "body-0" / "inertia.json").read_text())
    assert inertia["mass"] == pytest.approx(700 * inertia["volume"]) and inertia["density"] == 700
    read = trimesh.load(folder / "body-0" / "visual.glb", force="mesh")
    assert len(read.faces) == entry["faces"] and read.is_watertight
    pieces = [trimesh.load(path) for path in sorted((folder / "body-0" / "collision").glob("*.obj"))]
    assert len(pieces) == entry["pieces"] and all(piece.is_convex for piece in pieces)
    told = [e.text for e in info(InfoConfig(tmp_path / "scene")) if isinstance(e, Message)]
    assert any(text.startswith("mesh of a/b: ") and "never seen" in text for text in told)
    (folder / "body-0" / "inertia.json").write_text("{}")
    with pytest.raises(CorruptError, match="inertia.json"):
        list(info(InfoConfig(tmp_path / "scene")))


def test_what_cannot_be_meshed_is_refused_before_the_work(tmp_path: Path) -> None:
    scene = with_body(cube(0.03), still=True)
    save_scene(replace(scene, metric=False), tmp_path / "unknown")
    save_scene(scene, tmp_path / "scene")
    with pytest.raises(InputError, match=r"scale is unknown.*--rig-unit"):
        list(mesh(MeshConfig(tmp_path / "unknown")))
    with pytest.raises(UsageError, match="--only: the scene has no body 'thin'. Did you mean 'thing'"):
        list(mesh(MeshConfig(tmp_path / "scene", only="thin")))
    with pytest.raises(UsageError, match="--densities"):
        list(mesh(MeshConfig(tmp_path / "scene", densities={"cup": 1.0})))
