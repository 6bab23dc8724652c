from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recon
from recon.core.errors import CorruptError, InputError
from recon.core.files import MANIFEST
from recon.core.publish import write_manifest
from recon.core.tensors import read_tensors, write_tensors
from recon.geometry.rig import rig_to_json
from recon.scene.folder import FILES, load_scene, save_scene
from recon.scene.gaussians import Gaussians, table_fields
from recon.scene.scene import Scene
from tests.recon.scene.make import scene, table


def assert_same(a: Scene, b: Scene) -> None:
    for name in table_fields():
        assert torch.equal(getattr(a.gaussians, name), getattr(b.gaussians, name)), name
    assert rig_to_json(a.rig) == rig_to_json(b.rig)
    np.testing.assert_array_equal(a.scene_from_rig, b.scene_from_rig)
    assert (a.time_range, a.up, a.metric) == (b.time_range, b.up, b.metric)
    assert (a.provenance, a.frame_times) == (b.provenance, b.frame_times)
    assert [(x.name, x.id, x.kind, x.parent) for x in a.bodies] == [(x.name, x.id, x.kind, x.parent) for x in b.bodies]
    for x, y in zip(a.bodies, b.bodies, strict=True):
        assert x.track is not None
        assert y.track is not None
        np.testing.assert_array_equal(x.track.times, y.track.times)
        assert torch.equal(x.track.positions, y.track.positions)
        assert torch.equal(x.track.quats, y.track.quats)
    assert list(a.colour) == list(b.colour)
    assert a.vignetting == b.vignetting
    for name in a.colour:
        np.testing.assert_array_equal(a.colour[name][0], b.colour[name][0])
        np.testing.assert_array_equal(a.colour[name][1], b.colour[name][1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_scene(scene(), tmp_path / "bench")
    return tmp_path / "bench"


def test_round_trip_is_exact_and_poses_the_same(folder: Path) -> None:
    loaded = load_scene(folder)
    assert_same(scene(), loaded)
    assert torch.equal(scene().at(0.6).means, loaded.at(0.6).means)
    assert_same(recon.load_scene(str(folder)), loaded)


def test_the_same_scene_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    save_scene(load_scene(folder), tmp_path / "again")
    for name in (*FILES, MANIFEST):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_a_scene_without_bodies_colour_or_times(tmp_path: Path) -> None:
    plain = Scene(table(3, 0), scene().rig, (0.0, 0.0))
    save_scene(plain, tmp_path / "plain")
    assert_same(plain, load_scene(tmp_path / "plain"))


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize("place", [0.0, 0.31, 0.77, 1.0])
def test_a_flipped_byte_is_found_and_named(folder: Path, name: str, place: float) -> None:
    data = bytearray((folder / name).read_bytes())
    data[int(place * (len(data) - 1))] ^= 0x10
    (folder / name).write_bytes(data)
    with pytest.raises(CorruptError) as caught:
        load_scene(folder)
    # A changed manifest accuses itself, or the file whose entry it no longer matches.
    assert name in str(caught.value) or name == MANIFEST


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_shortened_file_is_named(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(CorruptError, match=name):
        load_scene(folder)
    (folder / name).unlink()
    with pytest.raises(CorruptError, match=name):
        load_scene(folder)


def test_an_interrupted_save_leaves_the_old_scene(folder: Path) -> None:
    def fail(stage: Path) -> None:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        save_scene(replace(scene(), up="unknown"), folder, extras=fail)
    assert_same(load_scene(folder), scene())
    assert sorted(path.name for path in folder.parent.iterdir()) == ["bench"]


def test_extra_files_are_covered_by_the_manifest(folder: Path) -> None:
    def report(stage: Path) -> None:
        (stage / "report").mkdir()
        (stage / "report" / "index.html").write_text("<p>good")

    save_scene(scene(), folder, extras=report)
    assert_same(load_scene(folder), scene())
    (folder / "report" / "index.html").write_text("<p>evil")
    with pytest.raises(CorruptError, match=r"report/index\.html"):
        load_scene(folder)


def test_no_folder_and_no_scene(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a scene: there is no such folder"):
        load_scene(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorruptError, match="manifest"):
        load_scene(tmp_path / "empty")


def test_a_scene_that_does_not_hold_together_is_not_saved(tmp_path: Path) -> None:
    bad = scene()
    bad.gaussians.means[3, 1] = float("nan")
    with pytest.raises(InputError, match="means is not finite in 1 of 12 rows"):
        save_scene(bad, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any], name: str = "scene.json") -> None:
    """Changes a JSON file and makes the manifest agree: what a hostile or foreign writer could hand us."""
    data = json.loads((folder / name).read_text())
    change(data)
    (folder / name).write_text(json.dumps(data))
    write_manifest(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), "has version 2: this program reads version 1"),
        (lambda d: d.update(format="x"), "is not the header of a scene"),
        (lambda d: d.pop("bodies"), "the field 'bodies' is missing"),
        (lambda d: d.update(metrik=True), "unknown field 'metrik'. Did you mean 'metric'"),
        (lambda d: d.update(metric=1), "metric is '1': it must be true or false"),
        (lambda d: d.update(scene_from_rig=[[1, 2]]), "scene_from_rig is not a list of 4 numbers"),
        (lambda d: d.update(scene_from_rig=[[1, 0, 0, 0]]), "similarity"),
        (lambda d: d.update(time_range=[0]), "time_range is not a list of 2 numbers"),
        (lambda d: d.update(time_range=["0", 1]), "time_range is not a list of 2 numbers"),
        (lambda d: d["gaussians"].update(count=11), "scene.json says 11 of degree 2"),
        (lambda d: d["bodies"][0].update(id=True), "id is 'True'"),
        (lambda d: d["bodies"][0].update(path="../x"), "bodies.0.: unknown field 'path'"),
        (lambda d: d["bodies"].append(d["bodies"][0]), "listed twice"),
        (lambda d: d["bodies"][0].update(id=5), "lacks the track of body 'arm'"),
        (lambda d: d["bodies"].__setitem__(0, 3), "is not a JSON object"),
        (lambda d: d.update(colour=["left", "right"]), "matrix is missing or not float64 of shape .2, 3, 3."),
        (lambda d: d.update(colour=[1]), "colour must list different camera names"),
        (lambda d: d["frame_times"].update(left="now"), "frame_times of 'left' is not a list"),
    ],
)
def test_headers_that_lie_are_refused(folder: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    rewrite(folder, change)
    with pytest.raises(InputError, match=message):
        load_scene(folder)


def test_tensors_that_lie_are_refused(folder: Path) -> None:
    path = folder / "gaussians.safetensors"
    good = read_tensors(path)
    for bad, message in (
        ({**good, "means": good["means"][:5]}, "log_scales has shape"),
        ({**good, "means": torch.full((12, 3), float("nan"))}, "means is not finite"),
        ({k: v for k, v in good.items() if k != "kind"}, "missing or unknown: kind"),
        ({**good, "hidden": good["kind"]}, "missing or unknown: hidden"),
        ({k: v.double() if v.is_floating_point() else v for k, v in good.items()}, "float64"),
    ):
        write_tensors(path, bad)
        write_manifest(folder)
        with pytest.raises(InputError, match=message):
            load_scene(folder)
    write_tensors(path, good)
    tracks = folder / "tracks.safetensors"
    poses = read_tensors(tracks)
    for bad, message in (
        ({**poses, "7.times": poses["1.times"]}, "holds '7.times' of no body"),
        ({**poses, "1.times": poses["1.times"].float()}, "body 'arm' has odd number types"),
        ({**poses, "1.times": poses["1.times"].flip(0)}, "tracks.safetensors: body .arm.: a track has no usable times"),
        ({**poses, "1.quats": poses["1.quats"][:2]}, "quats of shape"),
    ):
        write_tensors(tracks, bad)
        write_manifest(folder)
        with pytest.raises(InputError, match=message):
            load_scene(folder)
    path.write_bytes(b"\xff" * 64)
    write_manifest(folder)
    with pytest.raises(InputError, match="not a valid safetensors file"):
        load_scene(folder)


def test_names_may_not_leave_the_folder(folder: Path) -> None:
    (folder.parent / "secret").write_text("x")

    def point_outside(manifest: dict[str, Any]) -> None:
        manifest["files"]["../secret"] = {"size": 1, "sha256": "0" * 64}

    data = json.loads((folder / MANIFEST).read_text())
    point_outside(data)
    (folder / MANIFEST).write_text(json.dumps(data))
    with pytest.raises(CorruptError, match="outside"):
        load_scene(folder)


def test_a_link_out_of_the_folder_is_refused(folder: Path) -> None:
    outside = folder.parent / "rig.json"
    shutil.move(folder / "rig.json", outside)
    (folder / "rig.json").symlink_to(outside)
    with pytest.raises(CorruptError, match="outside"):
        load_scene(folder)


def test_fifty_megabytes_load_in_a_second_of_work(tmp_path: Path) -> None:
    big = Scene(Gaussians.concat([table(280_000, 2)]), scene().rig, (0.0, 1.0))
    save_scene(big, tmp_path / "big")
    size = sum(path.stat().st_size for path in (tmp_path / "big").iterdir())
    assert 48e6 < size < 60e6
    start = time.process_time()  # not the clock on the wall: other processes may share the machine
    load_scene(tmp_path / "big")
    assert time.process_time() - start < 1.0
