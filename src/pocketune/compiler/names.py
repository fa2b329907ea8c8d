"""Names of the tensors that are added to a graph after it was built."""


def derived(*parts: str) -> str:
    """A name of these parts that no tensor of a network has, whatever its modules are called.

    A module has no dot in its name, and its name is not empty.
    """
    return "..".join(parts)
