"""Random streams of different purposes are independent."""

from pocketune.data.streams import Purpose, random_stream


def test_streams_are_apart():
    keys = [(purpose, *n) for purpose in Purpose for n in ((), (0,), (0, 0), (1,), (1, 0), (0, 1))]
    first = {random_stream(seed, *key).integers(2**62) for seed in (0, 1) for key in keys}
    assert len(first) == 2 * len(keys)


def test_a_stream_depends_on_nothing_else():
    one, other = (random_stream(3, Purpose.CROP, 1, 2).random(4).tolist() for _ in range(2))
    assert one == other
