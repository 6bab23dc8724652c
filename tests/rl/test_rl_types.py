"""The protocol is checked, not assumed; pictures are reduced exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.core.errors import InputError, UsageError
from rl.types import ObsSpec, check_env, final_observation, obs_spec, pack, shrink


def test_a_conforming_environment_passes(point_reach):
    spec = check_env(point_reach(4, size=16, privileged=True), 2, steps=40)
    assert spec == ObsSpec((("top", 16, 16),), proprio=2, privileged=4)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "DISABLED", None])
def test_another_autoreset_mode_is_refused(point_reach, mode):
    env = point_reach(2)
    env.metadata["autoreset_mode"] = mode
    with pytest.raises(UsageError, match="SAME_STEP"):
        check_env(env, 2)


@pytest.mark.parametrize("change", ["drop", "mask"])
def test_a_finished_row_without_its_final_observation_is_refused(change):
    finished = np.array([False, True])
    info = {"final_obs": {"rgb": {}, "proprio": np.zeros((2, 3), np.float32)}, "_final_obs": finished.copy()}
    spec = ObsSpec((), 3)
    assert final_observation(info, finished, spec) is info["final_obs"]
    assert final_observation({}, np.zeros(2, bool), spec) is None
    if change == "drop":
        del info["final_obs"]
    else:
        info["_final_obs"][1] = False
    with pytest.raises(UsageError, match=r"environments \[1\] finished without"):
        final_observation(info, finished, spec)


def test_wrong_dtype_shape_and_missing_camera_are_named(point_reach):
    env = point_reach(2, size=16)
    obs, _ = env.reset(seed=0)
    spec = obs_spec(obs)
    bad = {**obs, "rgb": {"top": obs["rgb"]["top"].astype(np.float32)}}
    for observation, message in [
        (bad, r"rgb\['top'\] is float32"),
        ({**obs, "rgb": {}}, "lacks camera 'top'"),
        ({**obs, "proprio": obs["proprio"][:1]}, r"proprio is float32 \[1, 2\]"),
    ]:
        env.observe = lambda observation=observation: observation
        with pytest.raises(InputError, match=message):
            from rl.types import check_obs

            check_obs(env.observe(), spec, 2)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([(8, 8, 4), (12, 12, 4), (8, 16, 8), (10, 14, 4), (16, 16, 16)]), st.integers(0, 2**31))
def test_shrink_is_the_rounded_area_average(shape, seed):
    height, width, size = shape
    images = np.random.default_rng(seed).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    out = shrink(torch.from_numpy(images), size).numpy().astype(int)
    if height % size == 0 and width % size == 0:
        cells = images.reshape(2, size, height // size, size, width // size, 3).astype(float).mean(axis=(2, 4))
    else:
        area = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(images).permute(0, 3, 1, 2).double(), size)
        cells = area.permute(0, 2, 3, 1).numpy()
    assert np.abs(out - cells).max() <= 0.5 + 1e-6


def test_pack_orders_cameras_by_the_spec_and_fills_absent_privileged():
    spec = ObsSpec((("b", 4, 4), ("a", 4, 4)), proprio=1, privileged=2)
    rgb = {"a": np.full((3, 4, 4, 3), 7, np.uint8), "b": np.full((3, 4, 4, 3), 9, np.uint8)}
    packed = pack({"rgb": rgb, "proprio": np.ones((3, 1), np.float32)}, spec, 4)
    assert packed.images[:, 0].unique().tolist() == [9]
    assert packed.images[:, 1].unique().tolist() == [7]
    assert packed.privileged.shape == (3, 2)
