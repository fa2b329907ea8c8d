"""Commands from dataclasses: each field is an argument or an option.

A command is a function whose parameters are dataclasses of options, which are filled from the
command line. Options that several commands share, or that the library declares, are written once.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, get_type_hints

import click
from click.core import ParameterSource

from pocketune.cli.errors import name_options
from pocketune.cli.options import Argument, shown_name
from pocketune.errors import PocketuneError
from pocketune.options import Option, OptionField, option_fields

_HELP = {"help_option_names": ["-h", "--help"]}


class WholeNumber(click.IntRange):
    """An integer in a range; errors call it an integer."""

    name = "integer"


class NamedPath(click.Path):
    """A path that is neither empty nor an address on the internet."""

    def convert(
        self,
        value: str | PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path as its type."""
        check_path(str(value), param)
        return super().convert(value, param, ctx)


def check_path(path: str, parameter: click.Parameter | None) -> None:
    """Refuse what is no path, though the system may take it for one.

    Raises:
        click.BadParameter: It is empty, which would be the current folder, or an address.
    """
    if not path:
        raise click.BadParameter("it is empty", param=parameter)
    if "://" in path:
        raise click.BadParameter(
            f"{path} is an address, and nothing is downloaded: download it, and give the file",
            param=parameter,
        )


class Command(click.Command):
    """A command that creates its dataclasses from the command line.

    Args:
        function: Takes dataclasses of options; its docstring is the help.
        examples: Command lines at the end of the help.
        goes_on: Whether a command that was stopped goes on where it was when it is repeated.
    """

    def __init__(
        self, function: Callable[..., None], examples: tuple[str, ...], *, goes_on: bool
    ) -> None:
        hints = get_type_hints(function)
        self.groups = {name: hints[name] for name in inspect.signature(function).parameters}
        self.fields = {
            each.name: each for group in self.groups.values() for each in option_fields(group)
        }
        self.examples = examples
        self.goes_on = goes_on
        self.function = function
        super().__init__(
            function.__name__,
            context_settings=_HELP,
            callback=self._call,
            params=[_parameter(each) for each in self.fields.values()],
            help=inspect.getdoc(function),
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; the error of a word too many tells of a path with a space."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            path = _unquoted(words) if type(error) is click.UsageError else None
            if path is None:
                raise
            hint = f"Quote a path with a space: {shlex.quote(path)}"
            raise click.UsageError(f"{error.message}. {hint}", ctx) from error

    def _call(self, **values: Any) -> None:
        try:
            made = {
                name: group(**{each.name: values[each.name] for each in option_fields(group)})
                for name, group in self.groups.items()
            }
            self.function(**made)
        except PocketuneError as error:
            name_options(error, [*self.fields.values()], values.values())
            raise

    def get_help(self, ctx: click.Context) -> str:
        """The help, with one panel for each group of options."""
        from pocketune.cli.help import command_help

        return command_help(ctx, self.fields.values(), self.examples)


class Group(click.Group):
    """Commands in panels. A command is imported when it is called or listed in the help.

    Args:
        name: The group's name.
        help: The group's description.
        panels: For each panel's title, the place `module:name` of each command by name.
        examples: Command lines at the end of the help.
        params: Options of the group itself.
    """

    def __init__(
        self,
        name: str,
        help: str,
        panels: Mapping[str, Mapping[str, str]],
        examples: tuple[str, ...] = (),
        params: list[click.Parameter] | None = None,
    ) -> None:
        super().__init__(name, help=help, params=params, context_settings=_HELP)
        self.panels = panels
        self.examples = examples
        self._places = {name: place for panel in panels.values() for name, place in panel.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of all commands, in the order of the help."""
        return list(self._places)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        """Import a command; None if there is no command of this name."""
        return self._imported(cmd_name) if cmd_name in self._places else None

    def _imported(self, cmd_name: str) -> click.Command:
        module, _, name = self._places[cmd_name].partition(":")
        found: click.Command = getattr(import_module(f"pocketune.cli.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; the error suggests the most similar name."""
        if args[0] not in self._places and not ctx.resilient_parsing:
            near = get_close_matches(args[0], self._places, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if there are no arguments, and exit with 2 so that scripts notice."""
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """The help, with one panel for each group of commands."""
        from pocketune.cli.help import group_help

        commands = {
            title: {name: self._imported(name) for name in places}
            for title, places in self.panels.items()
        }
        return group_help(ctx, commands, self.examples)


def command(*examples: str, goes_on: bool = False) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function; see `Command`."""
    return lambda function: Command(function, examples, goes_on=goes_on)


def given() -> dict[str, OptionField]:
    """The options of the running command that were given on the command line."""
    context = click.get_current_context()
    return {
        name: each
        for name, each in getattr(context.command, "fields", {}).items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


_LONGEST_NAME = 8
"""Most words of a path that was not quoted."""


def _unquoted(words: list[str]) -> str | None:
    """The path of something that exists, where some of these words are one name with spaces.

    A shell makes thousands of words of `*.jpg`, so that only a few together are tried.
    """
    for first, word in enumerate(words):
        for end in range(first + 2, min(first + _LONGEST_NAME, len(words)) + 1):
            path = " ".join(words[first:end])
            if not word.startswith("-") and os.path.exists(path):  # noqa: PTH110 - raises nothing
                return path
    return None


def _parameter(each: OptionField) -> click.Parameter:
    kinds = [kind for kind in each.kinds if kind is not NoneType]
    many, required = kinds == [list[str]], each.is_required
    facts: dict[str, Any] = {
        "type": _type(each.option, kinds),
        "required": required,
        "metavar": each.option.metavar,
        "callback": _listed if many else None,
    }
    if not required and not many:
        facts["default"] = each.default
    if each.option.known is not None:
        facts["shell_complete"] = partial(_completed, each.option.known)
    if isinstance(each.option, Argument):
        return click.Argument([each.name], nargs=-1 if many else 1, **facts)
    facts |= {"is_flag": True} if kinds == [bool] else {"multiple": many}
    return click.Option([shown_name(each)], help=each.option.help, **facts)


def _completed(
    known: Callable[[], Iterable[str]],
    _context: click.Context,
    _parameter: click.Parameter,
    start: str,
) -> list[str]:
    """The values that begin with what is typed already."""
    return [value for value in known() if value.startswith(start)]


def _type(option: Option, kinds: list[Any]) -> click.ParamType[Any] | None:
    """The type of a value; the library checks the range of fractional numbers."""
    if option.choices:
        return click.Choice(option.choices)
    if kinds == [int]:
        return WholeNumber(min=None if option.at_least is None else int(option.at_least))
    if kinds == [float]:
        return click.FLOAT
    if Path in kinds:  # with str, the value may be a path or a name, so it stays a string
        return NamedPath(path_type=str if str in kinds else Path)
    return None if kinds == [bool] else click.STRING


def _listed(_context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A repeated option, or paths by position, as a list; None if there are none."""
    if isinstance(parameter, click.Argument):
        for each in value:
            check_path(each, parameter)
    return list(value) or None
