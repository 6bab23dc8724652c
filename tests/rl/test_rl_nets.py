"""Networks: what depends on what, positions found, weights from the seed alone."""

from __future__ import annotations

import pytest
import torch

from recon.core.errors import UsageError
from rl.nets import ImageEncoder, NetConfig, build
from rl.types import ActionSpec, ObsSpec, Packed

SPEC = ObsSpec((("left", 32, 32), ("right", 32, 32)), proprio=3, privileged=2)
CONFIG = NetConfig(image_size=32, cell=2, channels=8, hidden=(32,))


def batch(rows=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (rows, 2, 32, 32, 3), generator=g, dtype=torch.uint8)
    return Packed(images, torch.randn(rows, 3, generator=g), torch.randn(rows, 2, generator=g))


def test_shapes_and_rows_are_independent():
    net = build(SPEC, ActionSpec(4), CONFIG)
    seen = batch()
    features = net.features(seen)
    assert features.shape == (5, net.feature_size)
    assert net.mean(features).shape == (5, 4)
    assert net.value(features, seen.privileged).shape == (5,)
    alone = net.features(seen.select(torch.tensor([2])))
    assert torch.allclose(alone[0], features[2], atol=1e-5)


def test_privileged_state_reaches_the_critic_only():
    net = build(SPEC, ActionSpec(4), CONFIG)
    a, b = batch(), batch()
    b.privileged = b.privileged + 1.0
    assert torch.equal(net.mean(net.features(a)), net.mean(net.features(b)))
    assert not torch.equal(net.value(net.features(a), a.privileged), net.value(net.features(b), b.privileged))


def test_the_critic_sends_no_gradient_into_the_features():
    net = build(SPEC, ActionSpec(4), CONFIG)
    net.value(net.features(batch()), batch().privileged).sum().backward()
    assert all(p.grad is None for p in net.encoder_parameters())
    net.mean(net.features(batch())).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.encoder_parameters())


def test_the_soft_arg_max_follows_a_bright_spot():
    encoder = ImageEncoder(1, NetConfig(image_size=32, cell=2, channels=1))
    with torch.no_grad():
        for module in encoder.maps:
            if isinstance(module, torch.nn.Conv2d):
                module.weight.fill_(0.2)
                module.bias.zero_()
    points = []
    for row, column in [(4, 4), (4, 28), (28, 4)]:
        image = torch.zeros(1, 1, 32, 32, 3, dtype=torch.uint8)
        image[0, 0, row - 2 : row + 2, column - 2 : column + 2] = 255
        points.append(encoder(image)[0].detach())
    assert points[1][0] > points[0][0] + 0.5 and abs(points[1][1] - points[0][1]) < 0.1  # x moved, y not
    assert points[2][1] > points[0][1] + 0.5 and abs(points[2][0] - points[0][0]) < 0.1


def test_weights_come_from_the_seed_and_leave_the_global_generator_alone():
    torch.manual_seed(1)
    before = torch.rand(1)
    torch.manual_seed(1)
    first = build(SPEC, ActionSpec(4), CONFIG, seed=3)
    assert torch.equal(torch.rand(1), before)
    torch.manual_seed(99)
    again, other = build(SPEC, ActionSpec(4), CONFIG, seed=3), build(SPEC, ActionSpec(4), CONFIG, seed=4)
    same = [torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(first.actor_out.weight, other.actor_out.weight)


def test_log_std_has_a_floor():
    net = build(SPEC, ActionSpec(4), CONFIG)
    with torch.no_grad():
        net.log_std_free.fill_(-50.0)
    assert net.log_std().tolist() == [CONFIG.log_std_min] * 4


@pytest.mark.parametrize("bad", [{"image_size": 30}, {"image_size": 8}, {"log_std": -5.0}, {"cell": 3}])
def test_impossible_configurations_are_refused(bad):
    with pytest.raises(UsageError):
        NetConfig(**bad)
