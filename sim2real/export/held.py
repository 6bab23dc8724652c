"""The environment without its autoreset: other people's loops decide themselves when an episode begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim2real.env import Observation, SplatVectorEnv
from sim2real.scenarios import Scenario


class HeldEnv(SplatVectorEnv):
    """Goes on after an episode's end until `start` is called. Environment i plays scenario i of `play`."""

    def play(self, scenarios: list[Scenario]) -> None:
        """One scenario per environment, from the next start on."""
        self.scenarios = list(scenarios)
        self._episode[:] = -1

    def start(self, rows: NDArray[np.int64]) -> Observation:
        """Begin an episode in those environments; the observation of all."""
        self._start(np.asarray(rows, np.int64))
        return self.observe()

    def _finish(self, done: NDArray[np.bool_], diverged: NDArray[np.bool_], info: dict[str, Any]) -> Observation:
        if diverged.any():  # there is nothing to draw of a state that is not finite
            self._restore_home(np.flatnonzero(diverged))
        observation = self.observe()
        info["final_obs"] = observation
        return observation
