"""Per-camera colour: an affine map from the scene's colours to what one camera recorded, and its vignetting.

    recorded = (scene (I + M_c) + b_c) (1 - v_c r^2),   r = distance from the principal point / half the diagonal

A change of all cameras at once is a change of the scene's own colours, so it cannot be seen: after each step the mean
of M, b and v over the cameras is subtracted (a soft penalty leaves a cast; the projection does not).
"""

from __future__ import annotations

import torch
from torch import Tensor


class ColourModel:
    """Affine colour of each camera.

    matrices: [C, 3, 3] deviation from identity; offsets: [C, 3] in sRGB units; vignetting: [C], of encoded values.
    """

    def __init__(self, cameras: list[str], device: torch.device, lr: float = 1e-3, weight: float = 1e-3) -> None:
        self.cameras = list(cameras)
        self.weight = weight
        count = len(cameras)
        self.matrices = torch.zeros(count, 3, 3, device=device, requires_grad=True)
        self.offsets = torch.zeros(count, 3, device=device, requires_grad=True)
        self.vignetting = torch.zeros(count, device=device, requires_grad=True)
        leaves = [leaf for _, leaf in self._parameters()]
        self.optimizer = torch.optim.Adam(leaves, lr=lr, betas=(0.9, 0.99), eps=1e-15)

    def _parameters(self) -> tuple[tuple[str, Tensor], ...]:
        return (("matrices", self.matrices), ("offsets", self.offsets), ("vignetting", self.vignetting))

    def apply(self, picture: Tensor, camera: int, r2: Tensor) -> Tensor:
        """picture [..., 3] in scene colours, r2 [...] squared distances r^2 -> the camera's colours."""
        eye = torch.eye(3, device=picture.device)
        even = picture @ (eye + self.matrices[camera]) + self.offsets[camera]
        return even * (1.0 - self.vignetting[camera] * r2)[..., None]

    def penalty(self, camera: int) -> Tensor:
        """weight (||M_c||^2 + ||b_c||^2 + v_c^2): keeps the map near identity where the pictures do not say."""
        squares = self.matrices[camera].square().sum() + self.offsets[camera].square().sum()
        return self.weight * (squares + self.vignetting[camera].square())

    @torch.no_grad()
    def step(self) -> None:
        """One Adam step, then the gauge: the mean over cameras is projected out."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.matrices -= self.matrices.mean(dim=0, keepdim=True)
        self.offsets -= self.offsets.mean(dim=0, keepdim=True)
        self.vignetting -= self.vignetting.mean()

    def table(self) -> dict[str, tuple[Tensor, Tensor]]:
        """camera -> (I + M [3, 3], b [3]), detached, on the CPU."""
        eye = torch.eye(3, device=self.matrices.device)
        return {
            name: ((eye + self.matrices[i]).detach().cpu(), self.offsets[i].detach().cpu())
            for i, name in enumerate(self.cameras)
        }

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and optimiser state for a checkpoint."""
        found = {f"colour.{name}": parameter.detach() for name, parameter in self._parameters()}
        for name, parameter in self._parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                found[f"colour.{name}.{key}"] = value
        return found

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors()` gave."""
        for name, parameter in self._parameters():
            parameter.copy_(tensors[f"colour.{name}"])
            state = {key: tensors.get(f"colour.{name}.{key}") for key in ("step", "exp_avg", "exp_avg_sq")}
            if all(value is not None for value in state.values()):
                moments = {
                    k: v.to(parameter.device, copy=True) for k, v in state.items() if v is not None and k != "step"
                }
                self.optimizer.state[parameter] = {"step": tensors[f"colour.{name}.step"].clone(), **moments}
