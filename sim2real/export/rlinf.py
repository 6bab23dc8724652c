"""A folder that is an RLinf plug-in: `rlinf_ext.py` with `register`, an env group file, and the scene."""

from __future__ import annotations

from pathlib import Path

from recon.core.files import write_bytes
from sim2real.export.bundle import write_bundle
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import write_header

ABOUT = "environment plug-in (`rlinf_ext.py`, env group file) and the scene, for RLinf"
LOSSES = (
    "the policy: RLinf's configuration of actor and rollout is yours; env/splat.yaml is only the environment's part",
)
HOW_TO_OPEN = "PYTHONPATH={out} RLINF_EXT_MODULE=rlinf_ext, and env/splat.yaml as env.train and env.eval"
GROUP = """\
env_type: splat
total_num_envs: 8
auto_reset: true
ignore_terminations: false
use_rel_reward: false
reward_coef: 1.0
group_size: 1
use_fixed_reset_state_ids: false
is_eval: false
seed: 0
max_episode_steps: 24
max_steps_per_rollout_epoch: 24
video_cfg: {save_video: false, info_on_video: false, video_base_dir: ../results/video}
init_params: {task: reach, size: 128}
"""


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    write_bundle(cargo, folder)
    write_header(cargo, folder, write_splats(cargo, folder))
    copy_scripts(folder, "rlinf_ext.py")
    (folder / "env").mkdir()
    write_bytes(folder / "env" / "splat.yaml", GROUP.encode())
