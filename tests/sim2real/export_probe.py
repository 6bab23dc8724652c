"""Run by a target's own interpreter: what its engine makes of an exported folder, as JSON.

python export_probe.py FOLDER SCRIPT JOINTS.json [drop height m] [seconds]
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

folder, script, joints = sys.argv[1:4]
height, seconds = (float(v) for v in sys.argv[4:6])
sys.path.insert(0, folder)  # the script imports what lies beside it
spec = importlib.util.spec_from_file_location("loader", Path(folder) / script)
loader = importlib.util.module_from_spec(spec)
sys.modules["loader"] = loader
spec.loader.exec_module(loader)
bench = loader.Bench(folder)
result = {"poses": [], "masses": bench.masses()}
for positions in json.loads(Path(joints).read_text()):
    bench.set_joints(positions)
    result["poses"].append({name: np.asarray(pose).tolist() for name, pose in bench.poses().items()})
bench.reset()
for thing in bench.header["things"]:
    pose = np.array(thing["world_from_thing"])
    pose[2, 3] += height
    bench.set_pose(thing["name"], pose)
bench.step(seconds)
result["rest"] = {name: np.asarray(pose).tolist() for name, pose in bench.poses().items()}
print("PROBE" + json.dumps(result))
