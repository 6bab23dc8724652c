from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from recon.core.errors import InputError
from recon.scene.gaussians import RIGID, Gaussians, table_fields
from tests.recon.scene.make import moving_table, table


def equal(a: Gaussians, b: Gaussians) -> bool:
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in table_fields())


def test_select_and_concat_are_inverse() -> None:
    g = moving_table().validate()
    mask = torch.arange(12) % 3 == 0
    back = Gaussians.concat([g.select(mask), g.select(~mask)])
    order = torch.cat([torch.nonzero(mask)[:, 0], torch.nonzero(~mask)[:, 0]])
    assert equal(back, g.select(order))
    assert len(back) == 12
    assert len(g.of_body(2)) == 2


def test_concat_pads_colours_of_lower_degree() -> None:
    low, high = table(3, degree=0), table(2, degree=2)
    both = Gaussians.concat([low, high]).validate()
    assert both.degree == 2
    torch.testing.assert_close(both.sh[:3, 0], low.sh[:, 0])
    assert (both.sh[:3, 1:] == 0).all()
    assert len(Gaussians.concat([])) == 0
    assert Gaussians.empty(3).validate().degree == 3


def test_to_moves_every_column() -> None:
    assert {column.device.type for column in moving_table().to("meta").tensors().values()} == {"meta"}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("quats", torch.zeros(12, 3), r"quats has shape \[12, 3\], not \[12, 4\]"),
        ("means", torch.zeros(11, 3), r"log_scales has shape \[12, 3\], not \[11, 3\]"),
        ("sh", torch.zeros(12, 9), r"sh has shape \[12, 9\]"),
        ("sh", torch.zeros(12, 5, 3), "5 spherical harmonics"),
        ("object_id", torch.zeros(12, dtype=torch.int64), "object_id has the type torch.int64"),
        ("kind", torch.full((12,), 3, dtype=torch.uint8), "kind holds 3"),
        ("object_id", torch.full((12,), -1, dtype=torch.int32), "object_id holds -1"),
        ("kind", torch.full((12,), RIGID, dtype=torch.uint8), "rigid row has object_id 0"),
        ("log_scales", torch.zeros(12, 3, dtype=torch.float64), "log_scales has the type torch.float64"),
        ("time_centers", torch.full((12,), float("nan")), "time_centers is not finite in 12 of 12 rows"),
        ("velocities", torch.full((12, 3), float("-inf")), "velocities is not finite in 12 of 12 rows"),
    ],
)
def test_validate_names_what_is_wrong(column: str, value: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(moving_table(), **{column: value}).validate()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_bad_number_is_found_and_counted(bad: float) -> None:
    g = moving_table()
    g.sh[7, 2, 1] = bad
    with pytest.raises(InputError, match="sh is not finite in 1 of 12 rows"):
        g.validate()
