"""Methods by name, for commands and for kits."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from pocketune.errors import PocketuneError, real_number, whole_number
from pocketune.extensions import import_extension, import_extensions
from pocketune.methods.method import Method, Sum

_methods: dict[str, type[Method]] = {}

_NAME = re.compile("[a-z][a-z0-9_]*")

M = TypeVar("M", bound=type[Method])


def register_method(name: str) -> Callable[[M], M]:
    """Class decorator that registers a method under `name`.

    A class that is defined again, as in a notebook's cell that runs twice, takes the place of the
    earlier one.

    Raises:
        PocketuneError: Another method has the name, or it is not a word in lower case.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise PocketuneError(
            f"the name {name!r} of a method must be lower-case letters, digits and _, with a "
            "letter first; sums have a + between the names of methods"
        )

    def register(method: M) -> M:
        earlier = Sum if name == Sum.name else _methods.get(name)
        if earlier is not None and _place(earlier) != _place(method):
            raise PocketuneError(
                f"the method {earlier.__module__}.{earlier.__qualname__} is called {name} already; "
                f"give {method.__qualname__} another name"
            )
        method.name = name
        _methods[name] = method
        return method

    return register


def _place(method: type[Method]) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def list_methods() -> list[str]:
    """Names for `create_method`, in the order of registration."""
    import_extensions("methods")
    return list(_methods)


def describe_method(name: str) -> str:
    """The first line of the method's documentation.

    Raises:
        PocketuneError: The method is unknown.
    """
    return (_method_class(name).__doc__ or "").partition("\n")[0]


def create_method(name: str, **options: Any) -> Method:
    """The method called `name`, with these options; or the sum of methods with a `+` between.

    >>> create_method("blocks", blocks=2)
    TopBlocks(blocks=2)
    >>> create_method("blocks+signed", blocks=2)
    TopBlocks(blocks=2) + SignedBackward()

    Args:
        name: One of `list_methods()`, or several.
        options: Options by name. In a sum, an option applies to all methods that have it.

    Raises:
        PocketuneError: The method or an option is unknown, or a value has the wrong type.
    """
    if isinstance(name, str) and "+" in name:
        return compose_method(name, options)
    return _create(name, options)


def _create(name: str, options: Mapping[str, Any]) -> Method:
    """One method with these options, by any names."""
    method = _method_class(name)
    known = [field.name for field in fields(method)]  # type: ignore[arg-type]
    unknown = [option for option in options if option not in known]
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise PocketuneError(f"method {name} has no option {unknown[0]}; {has}")
    kinds = get_type_hints(method)
    for option, value in options.items():
        if kinds[option] is bool and not isinstance(value, bool):
            raise PocketuneError(f"{option}={value!r} must be true or false")
        if kinds[option] is int and whole_number(value) is None:
            raise PocketuneError(f"{option}={value!r} must be a whole number")
    return method(**options)


def compose_method(names: str, options: Mapping[str, Any], **step: int) -> Method:
    """One method, or the sum of several whose names have a `+` between them.

    >>> compose_method("blocks+signed", {"blocks": 2})
    TopBlocks(blocks=2) + SignedBackward()

    Args:
        names: The names.
        options: Options by name. In a sum, an option applies to all methods that have it.
        step: `batch` and `size` of the images, for methods that measure with them.

    Raises:
        PocketuneError: There is no such method, or no method has such an option.
    """
    terms, unknown = [], set(options)
    several = "+" in names
    for name in names.split("+"):
        known = {field.name for field in fields(_method_class(name))}  # type: ignore[arg-type]
        given = {k: v for k, v in options.items() if k in known or not several}
        terms.append(_create(name, {k: v for k, v in step.items() if k in known} | given))
        unknown -= known
    if several and unknown:
        raise PocketuneError(f"none of the methods {names} has the option {min(unknown)}")
    return Sum(tuple(terms)) if several else terms[0]


def method_to_dict(method: Method) -> dict[str, Any]:
    """Plain values for JSON.

    >>> method_to_dict(create_method("blocks", blocks=3))
    {'name': 'blocks', 'blocks': 3}

    Raises:
        PocketuneError: The method is not registered.
    """
    if isinstance(method, Sum):
        return {"name": Sum.name, "methods": [method_to_dict(term) for term in method.methods]}
    if type(method) not in _methods.values():
        kind = type(method).__name__
        raise PocketuneError(
            f"{kind} has no name that a kit can record; decorate it with "
            f'@register_method("{kind.lower()}") of pocketune.methods'
        )
    options = fields(method)  # type: ignore[arg-type]
    return {
        "name": method.name,
        **{each.name: _plain(getattr(method, each.name)) for each in options},
    }


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, for JSON; other values unchanged."""
    whole = whole_number(value)
    number = real_number(value) if whole is None else whole
    return value if number is None else number


def method_from_dict(values: Mapping[str, Any]) -> Method:
    """The inverse of `method_to_dict`.

    Raises:
        PocketuneError: The values do not describe a method.
    """
    options = dict(values) if isinstance(values, Mapping) else {}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise PocketuneError(f"a method's description has no name: {values}")
    if name != Sum.name:
        return _create(name, options)
    terms = options.pop("methods", None)
    if not isinstance(terms, list) or options:
        raise PocketuneError(f"a sum has 'methods', a list, and nothing else: {values}")
    return Sum(tuple(method_from_dict(term) for term in terms))


def _method_class(name: str) -> type[Method]:
    if name not in _methods:
        import_extension("methods", name)
    if name not in _methods:
        known = ", ".join(list_methods())
        raise PocketuneError(f"there is no method {name!r}; choose from {known}")
    return _methods[name]
