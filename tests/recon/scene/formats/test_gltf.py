"""glTF: round trips of still and moving scenes, foreign files, foreign readers and writers."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recon.core.errors import InputError
from recon.geometry.quaternion import quat_to_matrix
from recon.scene.formats.gltf import write_gltf
from recon.scene.formats.gltf_read import read_gltf
from recon.scene.formats.registry import read_splats
from recon.scene.formats.splats import Splats
from recon.scene.gaussians import RESIDUAL, RIGID, Gaussians
from recon.scene.motion import pose_gaussians
from tests.recon.scene.formats.test_formats import SPLATS, apart, foreign, shapes, tame
from tests.recon.scene.make import scene, table

TRANSFORM = shutil.which("splat-transform")


def moving() -> Splats:
    """The scene of the tests, without what lives in time only."""
    s = scene()
    g = s.gaussians.select(s.gaussians.kind != RESIDUAL)
    return Splats(g, "luf", (), tuple(s.bodies), s.time_range, metric=True)


def shown(splats: Splats, t: float) -> list[torch.Tensor]:
    """What is drawn at `t`, in an order that does not depend on the rows'."""
    posed = pose_gaussians(splats.gaussians, {b.id: b.pose_at(t) for b in splats.bodies}, t)
    axes = quat_to_matrix(posed.quats) * posed.scales[:, None]
    order = posed.means[:, 0].argsort()
    return [x[order] for x in (posed.means, axes @ axes.transpose(1, 2), posed.opacities, posed.sh)]


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_still_gaussians_keep_every_number_but_for_roots_and_logs(tmp_path: Path, degree: int) -> None:
    g = table(50, degree)
    write_gltf(Splats(g, "luf"), tmp_path / "a.glb")
    one, back = read_splats(tmp_path / "a.glb")
    assert (one.name, back.axes, back.gaussians.degree) == ("gltf", "luf", degree)
    assert torch.equal(back.gaussians.means, g.means) and torch.equal(back.gaussians.sh, g.sh)
    far = apart(g, back.gaussians)
    assert max(far.values()) < 1e-6


def test_bodies_and_their_tracks_come_back(tmp_path: Path) -> None:
    before = moving()
    write_gltf(before, tmp_path / "a.glb")
    after = read_gltf(tmp_path / "a.glb")
    assert [(b.name, b.kind, b.parent) for b in after.bodies] == [("arm", "link", None), ("cup", "object", "arm")]
    assert after.time_range == before.time_range and after.metric
    arm, cup = (body.track for body in after.bodies)
    assert arm is not None and cup is not None and before.bodies[0].track is not None
    assert torch.equal(arm.positions, before.bodies[0].track.positions)
    np.testing.assert_allclose(arm.times, before.bodies[0].track.times, atol=1e-6)
    for t in (0.0, 0.37, 2.0):
        for a, b in zip(shown(before, t), shown(after, t), strict=True):
            torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**20), st.floats(-5, 1.9), st.floats(0, 1))
def test_any_start_and_any_time_are_kept(tmp_path: Path, seed: int, start: float, share: float) -> None:
    before = replace(moving(), time_range=(start, 2.0), gaussians=moving().gaussians)
    write_gltf(before, tmp_path / "a.glb")
    t = start + share * (2.0 - start)
    for a, b in zip(shown(before, t), shown(read_gltf(tmp_path / "a.glb"), t), strict=True):
        torch.testing.assert_close(a, b, atol=3e-5, rtol=1e-4)


def test_what_lives_in_time_is_frozen_at_the_start(tmp_path: Path) -> None:
    s = scene()
    whole = Splats(s.gaussians, "luf", (), tuple(s.bodies), (1.2, 2.0))
    write_gltf(whole, tmp_path / "a.glb")
    assert len(read_gltf(tmp_path / "a.glb").gaussians) == len(s.frozen(1.2))


def document(path: Path) -> tuple[dict[str, Any], bytes]:
    """(JSON, binary chunk)."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<I", data, 12)
    return json.loads(data[20 : 20 + length]), data[28 + length :]


def assemble(path: Path, top: dict[str, Any], binary: bytes) -> None:
    text = json.dumps(top).encode()
    text += b" " * (-len(text) % 4)
    head = struct.pack("<III", 0x46546C67, 2, 28 + len(text) + len(binary))
    path.write_bytes(
        head + struct.pack("<II", len(text), 0x4E4F534A) + text + struct.pack("<II", len(binary), 0x4E4942) + binary
    )


def test_a_golden_file_says_what_the_extension_wants(tmp_path: Path) -> None:
    write_gltf(moving(), tmp_path / "a.glb")
    top, binary = document(tmp_path / "a.glb")
    primitive = top["meshes"][0]["primitives"][0]
    assert primitive["mode"] == 0
    assert primitive["extensions"]["KHR_gaussian_splatting"]["kernel"] == "ellipse"
    assert top["extensionsUsed"] == ["KHR_gaussian_splatting"] and len(top["nodes"]) == 3
    names = list(primitive["attributes"])
    assert names[:5] == [
        "POSITION",
        "COLOR_0",
        *(f"KHR_gaussian_splatting:{n}" for n in ("ROTATION", "SCALE", "OPACITY")),
    ]
    assert names[-1] == "KHR_gaussian_splatting:SH_DEGREE_2_COEF_4" and len(names) == 5 + 9
    view = top["bufferViews"][
        top["accessors"][primitive["attributes"]["KHR_gaussian_splatting:ROTATION"]]["bufferView"]
    ]
    xyzw = np.frombuffer(binary, "<f4", 4, view["byteOffset"])
    wxyz = torch.nn.functional.normalize(moving().gaussians.quats[0], dim=0)
    np.testing.assert_allclose(xyzw, wxyz[[1, 2, 3, 0]], atol=1e-6)
    assert {c["target"]["path"] for c in top["animations"][0]["channels"]} == {"translation", "rotation"}


def test_trimesh_finds_the_same_points_and_nodes(tmp_path: Path) -> None:
    write_gltf(moving(), tmp_path / "a.glb")
    loaded = trimesh.load_scene(tmp_path / "a.glb")
    assert {"world", "arm", "cup"} <= set(loaded.graph.nodes)
    pose, name = loaded.graph["arm"]
    quat, position = moving().bodies[0].pose_at(0.0)
    np.testing.assert_allclose(pose[:3, 3], position, atol=1e-6)
    np.testing.assert_allclose(pose[:3, :3], quat_to_matrix(quat), atol=1e-5)
    g = moving().gaussians
    np.testing.assert_allclose(loaded.geometry[name].vertices, g.of_body(1).means, atol=1e-6)


def test_the_khronos_validator_has_no_complaint(tmp_path: Path) -> None:
    node, run = shutil.which("node"), None
    for folder in (Path(p).parent for p in [shutil.which("splat-transform") or ""] if p):
        run = next((p for p in folder.resolve().parents if (p / "gltf-validator").is_dir()), None)
        run = run or (folder.parent if (folder.parent / "gltf-validator").is_dir() else None)
    if node is None or run is None:
        pytest.skip("gltf-validator (Node) is not installed beside splat-transform")
    write_gltf(moving(), tmp_path / "a.glb")
    script = (
        "const v=require(process.argv[1]);const fs=require('fs');"
        "v.validateBytes(new Uint8Array(fs.readFileSync(process.argv[2]))).then(r=>console.log(JSON.stringify(r)))"
    )
    command = [node, "-e", script, str(run / "gltf-validator"), str(tmp_path / "a.glb")]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # It does not know the extension, so neither its attributes' names.
    found = [m for m in report["issues"]["messages"] if "KHR_gaussian_splatting:" not in m["pointer"]]
    assert not [m for m in found if m["severity"] < 2 and m["code"] != "UNSUPPORTED_EXTENSION"], found
    assert report["info"]["animationCount"] == 1 and report["info"]["totalVertexCount"] == 8


@pytest.mark.skipif(TRANSFORM is None, reason="splat-transform (Node) is not installed")
def test_we_read_what_another_tool_writes(tmp_path: Path) -> None:
    from recon.scene.formats.axes import rotation, turned
    from recon.scene.formats.ply import write_ply

    g = tame(100, 3)
    write_ply(g, tmp_path / "a.ply")
    subprocess.run(
        [str(TRANSFORM), "-q", "-w", tmp_path / "a.ply", tmp_path / "a.glb"], check=True, capture_output=True
    )
    back = read_gltf(tmp_path / "a.glb").gaussians
    ours = turned(g, rotation("luf", "rdf"))  # it takes PLY files as x right, y down, too
    back = back.select(torch.cdist(ours.means, back.means).argmin(1))
    far = apart(ours, back)
    assert max(far[name] for name in ("means", "opacity", "sh0")) < 1e-5
    torch.testing.assert_close(shapes(back), shapes(ours), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(back.sh, ours.sh, atol=1e-5, rtol=1e-4)


@foreign
@pytest.mark.parametrize("name", ["khr_conformance_matrix.glb", "khr_conformance_matrix.gltf"])
def test_every_number_type_of_the_conformance_file_is_read(name: str) -> None:
    splats = read_splats(SPLATS / name)[1]
    g = splats.gaussians.validate()
    assert g.degree == 3 and len(g) >= 15 and not splats.bodies
    assert torch.allclose(g.quats.norm(dim=1), torch.ones(len(g)), atol=0.02)


def test_nodes_place_their_meshes_with_turned_colours(tmp_path: Path) -> None:
    g = tame(20, 3)
    write_gltf(Splats(g, "luf"), tmp_path / "a.glb")
    top, binary = document(tmp_path / "a.glb")
    quat = np.array([0.5, -0.5, 0.5, 0.5])
    top["nodes"][0]["scale"] = [2.0, 2.0, 2.0]
    top["nodes"].append({"rotation": quat[[1, 2, 3, 0]].tolist(), "translation": [1.0, 2.0, 3.0], "children": [0]})
    top["scenes"][0]["nodes"] = [1]
    assemble(tmp_path / "b.glb", top, binary)
    back = read_gltf(tmp_path / "b.glb").gaussians
    turn = quat_to_matrix(torch.tensor(quat, dtype=torch.float32))
    torch.testing.assert_close(back.means, 2 * g.means @ turn.T + torch.tensor([1.0, 2, 3]))
    from recon.geometry.sh import eval_sh

    look = torch.nn.functional.normalize(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    torch.testing.assert_close(eval_sh(3, back.sh, look @ turn.T), eval_sh(3, g.sh, look), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["accessors"][0].update(count=10**9), "more than their view holds"),
        (lambda t: t["bufferViews"][0].update(byteOffset=10**9), "outside their buffer"),
        (lambda t: t["buffers"][0].update(byteLength=10**9), "declares 1000000000 bytes"),
        (lambda t: t["nodes"][0].update(children=[0]), "hangs in two places"),
        (lambda t: t["nodes"][0].update(scale=[1, 2, 1]), "scaled unevenly"),
        (lambda t: t["nodes"][0].update(mesh=7), "names number 7 of its meshes"),
        (lambda t: t.update(extensionsRequired=["KHR_draco"]), "requires the extension KHR_draco"),
        (lambda t: t["asset"].update(version="1.0"), "glTF 2"),
        (lambda t: t["meshes"][0]["primitives"][0].update(mode=4), "not made of points"),
        (lambda t: t["meshes"][0]["primitives"][0]["extensions"].clear(), "holds no Gaussians|world"),
        (lambda t: t["accessors"][0].update(sparse={}), "sparse"),
        (lambda t: t["buffers"][0].update(uri="../x.bin"), "cannot be read"),
        (lambda t: t["scenes"][0].update(nodes=[0] * 3), "hangs in two places"),
    ],
)
def test_lying_files_are_refused_in_one_line(tmp_path: Path, change: Any, message: str) -> None:
    write_gltf(Splats(table(6, 1), "luf"), tmp_path / "a.glb")
    top, binary = document(tmp_path / "a.glb")
    change(top)
    assemble(tmp_path / "a.glb", top, binary)
    with pytest.raises(InputError, match=message) as caught:
        read_gltf(tmp_path / "a.glb")
    assert "\n" not in str(caught.value)


def test_many_nodes_of_one_mesh_do_not_take_memory_without_end(tmp_path: Path) -> None:
    write_gltf(Splats(table(100, 0), "luf"), tmp_path / "a.glb")
    top, binary = document(tmp_path / "a.glb")
    top["nodes"] = [{"mesh": 0}] * 500
    top["scenes"][0]["nodes"] = list(range(500))
    assemble(tmp_path / "a.glb", top, binary)
    with pytest.raises(InputError, match="Gaussians, which it cannot hold"):
        read_gltf(tmp_path / "a.glb")


def kinds(g: Gaussians) -> int:
    return int((g.kind == RIGID).sum())


def test_an_animated_node_of_anyone_becomes_a_body(tmp_path: Path) -> None:
    write_gltf(moving(), tmp_path / "a.glb")
    top, binary = document(tmp_path / "a.glb")
    for node in top["nodes"]:
        node.pop("extras", None)
    top["scenes"][0].pop("extras")
    assemble(tmp_path / "b.glb", top, binary)
    back = read_gltf(tmp_path / "b.glb")
    assert [b.name for b in back.bodies] == ["arm"] and kinds(back.gaussians) == 2  # the cup stood still
    for a, b in zip(shown(moving(), 0.9), shown(back, 0.9), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
