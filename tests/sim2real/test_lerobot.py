"""LeRobot data sets: what is written is what was played; what is damaged is refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recon.core.errors import CorruptError, InputError, UsageError
from recon.core.events import Message
from recon.core.files import sha256_file, write_json
from recon.scene.folder import save_scene
from sim2real.cli import main
from sim2real.config import CollectOptions, ImportOptions, TrainOptions
from sim2real.env import SplatVectorEnv
from sim2real.lerobot.bring import bring
from sim2real.lerobot.collect import collect
from sim2real.lerobot.film import encode_film, read_film
from sim2real.lerobot.index import Films, Rows, open_collection
from sim2real.lerobot.layout import ACTION, STATE, place
from sim2real.lerobot.summary import Tones, summarise
from sim2real.lerobot.table import frame_table
from sim2real.train import train

CAMERA = "observation.images.cam00"
READER = os.environ.get("RECON_LEROBOT_PYTHON")


@pytest.fixture(scope="module")
def place_of_work(scene, cell, tmp_path_factory) -> Iterator[Path]:
    """A folder with scenes/made; the workcell of that scene is opened once, for that takes seconds."""
    folder = tmp_path_factory.mktemp("lerobot")
    save_scene(scene, folder / "scenes" / "made")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("sim2real.lerobot.collect", "sim2real.train"):
            patch.setattr(f"{module}.open_workcell", lambda source, *a, **k: replace(cell, source=source))
        yield folder


def _options(home: Path, robot: Path, out: str, **others) -> CollectOptions:
    settings = {"episodes": 3, "size": 32, "cameras": "cam00", "num_envs": 2, "noise": 0.1} | others
    return CollectOptions(str(home / "scenes" / "made"), robot=robot, out=home / out, **settings)


@pytest.fixture(scope="module")
def made(place_of_work: Path, robot: Path) -> Path:
    """Three episodes of the expert, 32 px, one camera."""
    scene, out = str(place_of_work / "scenes" / "made"), str(place_of_work / "made")
    words = ["--episodes", "3", "--size", "32", "--cameras", "cam00", "--num-envs", "2", "--noise", "0.1"]
    assert main(["collect", "--scene", scene, "--robot", str(robot), "--out", out, "--console", "quiet", *words]) == 0
    return Path(out)


def _rewrite(path: Path, **columns) -> None:
    table = pq.read_table(path)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table, path)


def _column(path: Path, name: str) -> np.ndarray:
    return np.array(pq.read_table(path)[name].to_pylist())


def _old(folder: Path, *, fps: int = 10, lengths=(4, 6)) -> Path:
    """A data set of version 2.1, written by hand as its description says."""
    rng = np.random.default_rng(0)
    first = 0
    for k, length in enumerate(lengths):
        columns = {
            STATE: rng.normal(size=(length, 2)).astype(np.float32),
            ACTION: rng.uniform(-1, 1, (length, 2)).astype(np.float32),
            "timestamp": (np.arange(length) / fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, k),
            "index": first + np.arange(length),
            "task_index": np.full(length, k % 2),
        }
        table = folder / "data" / "chunk-000" / f"episode_{k:06d}.parquet"
        film = folder / "videos" / "chunk-000" / CAMERA / f"episode_{k:06d}.mp4"
        for path in (table, film):
            path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(frame_table(columns), table)
        film.write_bytes(encode_film(_ramp(length, k), fps))
        first += length
    meta = folder / "meta"
    features = {name: {"dtype": "float32", "shape": [2], "names": None} for name in (STATE, ACTION)}
    features[CAMERA] = {"dtype": "video", "shape": [3, 32, 48], "names": ["channels", "height", "width"]}
    for name in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
        features[name] = {"dtype": "float32" if name == "timestamp" else "int64", "shape": [1], "names": None}
    (meta).mkdir()
    info = {
        "codebase_version": "v2.1", "robot_type": "so100", "fps": fps, "chunks_size": 1000, "features": features,
        "total_episodes": len(lengths), "total_frames": first,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }  # fmt: skip
    write_json(meta / "info.json", info)
    tasks = [{"task_index": k, "task": name} for k, name in enumerate(("lift", "turn"))]
    episodes = [{"episode_index": k, "tasks": ["lift"], "length": n} for k, n in enumerate(lengths)]
    (meta / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    (meta / "episodes.jsonl").write_text("\n".join(map(json.dumps, episodes)))
    return folder


def _ramp(length: int, k: int) -> np.ndarray:
    """Even pictures [length, 32, 48, 3] whose tone tells the episode and the frame."""
    tones = (40 + 90 * k + 10 * np.arange(length)).astype(np.uint8)
    return np.broadcast_to(tones[:, None, None, None], (length, 32, 48, 3)).copy()


def _pictures(root: Path) -> list[np.ndarray]:
    data = open_collection(root)
    films = Films(data)
    return [np.stack(list(films.frames(e, camera))) for e in data.episodes for camera in data.info.films]


# ---------------------------------------------------------------------- collecting


def test_rows_and_pictures_are_those_the_environment_gave(made: Path, cell) -> None:
    data = open_collection(made)
    rows, films = Rows(data), Films(data)
    env = SplatVectorEnv(cell, 1, cameras=("cam00",), size=32)
    scenarios = json.loads((made / "meta" / "sim2real.json").read_text())["scenarios"]
    for episode, number in zip(data.episodes, scenarios, strict=True):
        seen, _ = env.reset(options={"scenarios": [cell.sampler.draw(0, "train", number)]})
        columns = rows.read(episode)
        film = next(films.frames(episode, data.info.features[CAMERA]))
        np.testing.assert_array_equal(columns[STATE][0], seen["proprio"][0])
        np.testing.assert_array_equal(columns[ACTION][0], env.expert_action()[0])
        loss = np.mean((film.astype(float) - seen["rgb"]["cam00"][0]) ** 2)
        assert 10 * np.log10(255**2 / loss) > 28  # dB; the colours have half the resolution
        assert columns["next.done"][:, 0].tolist() == [False] * (episode.length - 1) + [True]
        assert columns["next.success"][-1, 0]


def test_the_same_seed_gives_the_same_bytes_alone_together_and_after_a_stop(
    place_of_work: Path, robot: Path, made: Path
) -> None:
    whole = open_collection(made)
    assert whole.info.episodes == 3
    events = collect(_options(place_of_work, robot, "again", num_envs=1))
    for event in events:
        if getattr(event, "stage", "") == "collect" and getattr(event, "step", 0) == 1:
            events.close()  # what a kill leaves: one episode in the working folder, no data set
    assert not (place_of_work / "again").exists() and (place_of_work / ".again.collect").is_dir()
    with pytest.raises(UsageError, match="begun with another seed"):
        list(collect(_options(place_of_work, robot, "again", seed=1)))
    told = [e for e in collect(_options(place_of_work, robot, "again", num_envs=1)) if isinstance(e, Message)]
    assert told[0].text == "1 episodes are there already"
    assert not (place_of_work / ".again.collect").exists()
    names = sorted(p.relative_to(made) for p in made.rglob("*") if p.is_file())
    assert [n for n in names if sha256_file(made / n) != sha256_file(place_of_work / "again" / n)] == []
    with pytest.raises(UsageError, match="exists already"):
        list(collect(_options(place_of_work, robot, "again")))


def test_what_fails_is_left_out_unless_asked_for(place_of_work: Path, robot: Path) -> None:
    options = {"policy": "zero", "noise": 0.0, "episodes": 2, "num_envs": 2}
    list(collect(_options(place_of_work, robot, "idle", failures=True, **options)))
    data = open_collection(place_of_work / "idle")
    assert [e.length for e in data.episodes] == [24, 24]  # the task's horizon: nothing was reached
    assert not Rows(data).read(data.episodes[0])["next.success"].any()
    for wrong in ({"size": 33}, {"policy": "random"}, {"episodes": 0}, {"noise": -1.0}):
        with pytest.raises(UsageError):
            list(collect(_options(place_of_work, robot, "wrong", **wrong)))


def test_a_policy_is_cloned_from_a_data_set(place_of_work: Path, robot: Path, made: Path) -> None:
    preset = place_of_work / "toy.yaml"
    preset.write_text(
        "size: 32\nnum_envs: 2\nnet: {image_size: 16, channels: 8, hidden: [32]}\nbc: {steps: 4, minibatch: 16}\n"
        "ppo: {minibatch: 16, epochs: 1, value_epochs: 1, warmup_iterations: 1}\nrun: {total_steps: 8, horizon: 4}\n"
    )
    options = {"preset": str(preset), "robot": robot, "cameras": "cam00", "out": place_of_work / "run"}
    scene = str(place_of_work / "scenes" / "made")
    stages = [getattr(e, "stage", "") for e in train(TrainOptions(scene, data=made, **options))]
    assert "read" in stages and "demonstrate" not in stages
    meta = json.loads((place_of_work / "run" / "bc" / "policy.json").read_text())["meta"]
    assert meta["stage"] == "bc" and meta["demonstrations"] == 3
    with pytest.raises(UsageError, match="holds a run with another data"):
        list(train(TrainOptions(scene, **options)))
    options |= {"out": place_of_work / "other", "cameras": "cam01"}
    with pytest.raises(InputError, match="has no 'observation.images.cam01'"):
        list(train(TrainOptions(scene, data=made, **options)))
    played = CollectOptions(
        scene, policy=str(place_of_work / "run"), robot=robot, episodes=1, failures=True, out=place_of_work / "played"
    )
    list(collect(played))  # size and camera are the policy's
    assert open_collection(place_of_work / "played").info.features[CAMERA].shape == (32, 32, 3)


# ---------------------------------------------------------------------- version 2.1


def test_version_2_becomes_3_and_no_picture_is_encoded_again(tmp_path: Path) -> None:
    old = _old(tmp_path / "old")
    told = [e.text for e in bring(ImportOptions(old)) if isinstance(e, Message)]
    assert "LeRobot v2.1, 2 episodes, 10 frames at 10 per second" in told[0] and "48x32" in told[3]
    new = tmp_path / "old-v3"
    before, after = open_collection(old), open_collection(new)
    assert after.info.version == "v3.0" and after.tasks == before.tasks == ["lift", "turn"]
    assert len(list(new.rglob("*.mp4"))) == 1  # of one make: one file
    for a, b in zip(before.episodes, after.episodes, strict=True):
        left, right = Rows(before).read(a), Rows(after).read(b)
        assert all((left[name] == right[name]).all() for name in left)
    for a, b in zip(_pictures(old), _pictures(new), strict=True):
        np.testing.assert_array_equal(a, b)
    assert after.episodes[1].tasks == ("turn",)  # as the rows say
    stats = json.loads((new / "meta" / "stats.json").read_text())
    assert stats[CAMERA]["count"] == [10] and np.shape(stats[CAMERA]["mean"]) == (3, 1, 1)
    assert list(bring(ImportOptions(new)))[-1].path == new
    with pytest.raises(UsageError, match="already"):
        list(bring(ImportOptions(new, out=tmp_path / "third")))


def test_films_of_another_make_begin_a_new_file(tmp_path: Path) -> None:
    old = _old(tmp_path / "old")
    path = old / "videos" / "chunk-000" / CAMERA / "episode_000001.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.height, stream.width, stream.pix_fmt = 32, 48, "yuv420p"
        for picture in _ramp(6, 1):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    list(bring(ImportOptions(old, out=tmp_path / "new")))
    assert len(list((tmp_path / "new").rglob("*.mp4"))) == 2
    for a, b in zip(_pictures(old), _pictures(tmp_path / "new"), strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------- bad input


def _damage(name: str, root: Path) -> str:
    """Damage a data set of version 2.1 and return what the message must say."""
    info_path = root / "meta" / "info.json"
    info = json.loads(info_path.read_text())
    table = root / "data" / "chunk-000" / "episode_000001.parquet"
    film = root / "videos" / "chunk-000" / CAMERA / "episode_000001.mp4"
    if name == "truncated table":
        table.write_bytes(table.read_bytes()[:-200])
        return "episode_000001.parquet cannot be read as parquet"
    if name == "truncated film":
        film.write_bytes(film.read_bytes()[:400])
        return "episode_000001.mp4"
    if name == "no film":
        film.unlink()
        return "episode_000001.mp4 is missing"
    if name == "short film":
        film.write_bytes(encode_film(_ramp(5, 1), 10))
        return "ends after 5 frames: episode 1 needs 0 to 5"
    if name == "film of another rate":
        film.write_bytes(encode_film(_ramp(6, 1), 15))
        return "frame 1 stands at 0.0667 s: at 10 frames per second it belongs at 0.1000 s"
    if name == "film of another size":
        film.write_bytes(encode_film(_ramp(6, 1)[:, :, :32], 10))
        return "shows 32x32 pixels"
    if name == "not a number":
        action = _column(table, ACTION).astype(np.float32)
        action[2, 1] = np.nan
        _rewrite(table, action=pa.FixedSizeListArray.from_arrays(pa.array(action.reshape(-1)), 2))
        return "episode 1, row 2: 'action' is not finite"
    if name == "empty place":
        _rewrite(table, timestamp=pa.array([None, *range(5)], pa.float32()))
        return "'timestamp' has empty places"
    if name == "other numbering":
        _rewrite(table, frame_index=pa.array([0, 1, 2, 4, 4, 5]))
        return "row 3: frame_index is 4, not 3"
    if name == "unknown task":
        _rewrite(table, task_index=pa.array([0, 0, 0, 7, 0, 0]))
        return "task_index reaches 7: 2 are listed"
    if name == "line":
        (root / "meta" / "episodes.jsonl").write_text('{"episode_index": 0, "tasks"')
        return "episodes.jsonl, line 1 is not JSON"
    changes: dict[str, tuple[dict, str]] = {
        "shape": ({"features": info["features"] | {STATE: {"dtype": "float32", "shape": [3]}}}, "says float32 [3]"),
        "type": ({"features": info["features"] | {STATE: {"dtype": "float64", "shape": [2]}}}, "says float64 [2]"),
        "rate": ({"fps": 20}, "at the 20 frames per second of info.json it must be 0.0500 s"),
        "half rate": ({"fps": 9.5}, "fps is 9.5"),
        "version": ({"codebase_version": "v1.6"}, "has LeRobot version 'v1.6': v2.1 and v3.0 are read"),
        "leaves": ({"data_path": "../{episode_index}.parquet"}, "may lead outside"),
        "attribute": ({"video_path": "{video_key.__class__}"}, "is no name of a file"),
        "wide": ({"data_path": "{episode_index:0999999d}"}, "is no name of a file"),
        "other key": ({"data_path": "{home}"}, "asks for 'home'"),
        "count": ({"total_episodes": 3}, "lists 2 episodes"),
        "frames": ({"total_frames": 11}, "have 10 frames: info.json says 11"),
        "features": ({"features": "many"}, "names no features"),
        "books": ({"features": {k: v for k, v in info["features"].items() if k != "index"}}, "no feature 'index'"),
    }
    change, message = changes[name]
    write_json(info_path, info | change)
    return message


DAMAGES = (
    "truncated table", "truncated film", "no film", "short film", "film of another rate", "film of another size",
    "not a number", "empty place", "other numbering", "unknown task", "line", "shape", "type", "rate", "half rate",
    "version", "leaves", "attribute", "wide", "other key", "count", "frames", "features", "books",
)  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_data_set_is_refused_in_one_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    old = _old(tmp_path / "old")
    message = _damage(name, old)
    with pytest.raises(InputError) as caught:
        list(bring(ImportOptions(old, out=tmp_path / "new")))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


def test_a_data_set_of_ours_that_changed_is_refused(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    path = next(copy.rglob("videos/**/*.mp4"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="file-000.mp4 is damaged"):
        list(bring(ImportOptions(copy)))
    (copy / "manifest.json").unlink()  # a stranger's has none: then the index itself must hold
    listed = copy / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    _rewrite(listed, **{"data/file_index": pa.array([0, 0, 1], pa.int64())})
    with pytest.raises(InputError, match="file-001.parquet is missing"):
        list(bring(ImportOptions(copy)))


# ---------------------------------------------------------------------- parts


def test_a_film_gives_back_its_frames_in_order(tmp_path: Path) -> None:
    frames, path = _ramp(7, 0), tmp_path / "film.mp4"
    path.write_bytes(encode_film(frames, 10))
    assert encode_film(frames, 10) == path.read_bytes()
    means = [frame.mean() for frame in read_film(path, 10, (32, 48))]
    np.testing.assert_allclose(means, frames.mean(axis=(1, 2, 3)), atol=2)


def test_tones_give_the_statistics_of_the_pictures() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (5, 6, 7, 3)).astype(np.uint8) // 3 + 20
    one, two = Tones(), Tones()
    one.add(frames[:2])
    two.add(frames[2:])
    one.merge(two)
    found, wanted = one.summary(), summarise((frames / 255).reshape(-1, 3))
    for name in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(found[name].reshape(3), wanted[name], atol=1e-12)
    for name in ("q01", "q50", "q99"):  # a tone that is there, not one between two
        np.testing.assert_allclose(found[name].reshape(3), wanted[name], atol=1 / 255)
    assert found["count"] == [5]


def test_names_of_files_stay_in_the_folder(tmp_path: Path) -> None:
    assert place(tmp_path, "a/{k:03d}-{n}.x", k=7, n="b") == tmp_path.resolve() / "a/007-b.x"
    with pytest.raises(InputError, match="outside"):
        place(tmp_path, "{n}/x", n="..")


@pytest.mark.skipif(READER is None, reason="RECON_LEROBOT_PYTHON names no interpreter that has lerobot")
def test_lerobot_itself_reads_what_we_wrote(made: Path) -> None:
    assert READER is not None
    script = Path(__file__).with_name("lerobot_reader.py")
    done = subprocess.run([READER, str(script), str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = json.loads(done.stdout.splitlines()[-1])
    ours = open_collection(made)
    assert (theirs["episodes"], theirs["frames"], theirs["fps"]) == (3, ours.info.frames, 10)
    assert theirs["tasks"] == ours.tasks and theirs["cameras"] == [CAMERA] and theirs["shapes"][CAMERA] == [3, 32, 32]
    rows = Rows(ours)
    for name in theirs["columns"]:
        mine = np.concatenate([rows.read(e)[name] for e in ours.episodes]).reshape(ours.info.frames, -1)
        np.testing.assert_array_equal(np.array(theirs["columns"][name], mine.dtype), mine)
    pictures = np.concatenate(_pictures(made)) / 255
    np.testing.assert_allclose(theirs["means"][CAMERA], pictures.mean(axis=(1, 2)), atol=0.01)
    assert theirs["batch"] == {"action": [4, 2, 6], CAMERA: [4, 2, 3, 32, 32]}
