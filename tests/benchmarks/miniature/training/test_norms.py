"""Group normalisation of our own against torch's."""

import pytest
import torch
from torch import nn

from benchmarks.miniature.training.norms import with_fast_norms


@pytest.mark.parametrize(("groups", "channels"), [(32, 32), (8, 32)])
def test_values_and_gradients_are_those_of_torch(groups: int, channels: int) -> None:
    """Of states, weights and biases, for one and for several channels a group."""
    torch.manual_seed(0)
    states = torch.randn(3, channels, 6, 5, requires_grad=True)
    target = torch.randn(3, channels, 6, 5)
    norm = nn.GroupNorm(groups, channels)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    inputs = [states, norm.weight, norm.bias]
    expected = norm(states)
    gradients = torch.autograd.grad((expected * target).sum(), inputs)
    own = with_fast_norms(norm)(states)
    torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-4)
    again = torch.autograd.grad((own * target).sum(), inputs)
    for mine, theirs in zip(again, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
