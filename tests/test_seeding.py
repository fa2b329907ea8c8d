"""Random numbers are equal in the context, and as they would have been after it."""

import torch

from pocketune.seeding import seeded


def test_numbers_are_those_of_the_seed_and_the_state_is_restored() -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    with seeded(3):
        first = torch.rand(2)
    with seeded(3):
        again = torch.rand(2)
    assert torch.equal(first, again)
    assert torch.equal(torch.rand(2), expected)
