"""Draw help and usage errors with rich."""

from __future__ import annotations

import inspect
from io import StringIO
from itertools import chain
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pocketune.cli.options import Argument, shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pocketune.options import OptionField

_FLAG = r"(?<![\w-])--?[a-z][a-z-]*"
_WIDEST = 20
_Row = tuple[str | Text, ...]


def command_help(
    context: click.Context, fields: Iterable[OptionField], examples: tuple[str, ...]
) -> str:
    """The help of a command: usage, description, arguments, options by panel, examples."""
    panels: dict[str, list[_Row]] = {"Arguments": [], "Options": []}
    for each in fields:
        default = "Arguments" if isinstance(each.option, Argument) else "Options"
        panels.setdefault(each.option.panel or default, []).append(_row(each))
    panels["Options"].append((Text("-h, --help", "bold cyan"), "", "Show this message and exit."))
    return _draw(
        _usage(context),
        _description(context.command.help or ""),
        *_panels(panels),
        *_examples(examples),
    )


def group_help(
    context: click.Context,
    commands: Mapping[str, Mapping[str, click.Command]],
    examples: tuple[str, ...],
) -> str:
    """The help of a group: usage, description, options, commands by panel, examples."""
    options: list[_Row] = [
        (Text(", ".join(parameter.opts), "bold cyan"), getattr(parameter, "help", None) or "")
        for parameter in context.command.get_params(context)
    ]
    panels = {"Options": options}
    for title, named in commands.items():
        panels[title] = [(Text(name, "bold cyan"), _summary(each)) for name, each in named.items()]
    return _draw(
        _usage(context),
        _description(context.command.help or ""),
        *_panels(panels),
        *_examples(examples),
    )


def usage_error(error: click.UsageError) -> str:
    """The usage of the command, and the error in its command line."""
    parts: list[RenderableType] = []
    if error.ctx is not None:
        hint = Text(f" Try '{error.ctx.command_path} --help' for help.", "dim")
        parts = [_usage(error.ctx), hint]
    message = Text(error.format_message())
    return _draw(*parts, Panel(message, title="Error", title_align="left", border_style="red"))


def _draw(*parts: RenderableType) -> str:
    """The text with colors, which `click.echo` removes unless it writes to a terminal."""
    console = Console(file=StringIO(), force_terminal=True, highlight=False)
    with console.capture() as capture:
        console.print(Group(*parts))
    return capture.get().rstrip("\n")


def _usage(context: click.Context) -> Text:
    """`Usage: pocketune train [OPTIONS] [PHOTOS]`."""
    pieces = ["[OPTIONS]"]
    for parameter in context.command.params:
        if isinstance(parameter, click.Argument):
            name = parameter.metavar or (parameter.name or "").upper()
            pieces.append(name if parameter.required else f"[{name}]")
    if isinstance(context.command, click.Group):
        pieces.append("COMMAND [ARGS]...")
    usage = Text.assemble((" Usage: ", "yellow"), (context.command_path, "bold"))
    return usage.append(f" {' '.join(pieces)}")


def _description(help: str) -> RenderableType:
    """Paragraphs, each wrapped to the width of the terminal."""
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(help).split("\n\n")]
    first, *rest = (_text(part) for part in paragraphs)
    rest = [Text("\n").append_text(part) for part in rest]
    return Padding(Group(first, *rest), 1)


def _panels(panels: dict[str, list[_Row]]) -> Iterable[RenderableType]:
    for title, rows in panels.items():
        if not rows:
            continue
        table = Table.grid(padding=(0, 2))
        for _ in rows[0][:-1]:
            table.add_column(no_wrap=True)
        table.add_column()
        for row in rows:
            table.add_row(*row)
        yield Panel(table, title=title, title_align="left", border_style="dim")


def _row(each: OptionField) -> _Row:
    option = each.option
    text, choices = _text(option.help), "|".join(option.choices)
    if len(choices) > _WIDEST:  # too wide for its column
        text.append(f" [one of {', '.join(option.choices)}]", "yellow")
        choices = ""
    if each.is_required:
        text.append(" [required]", "red")
    elif each.default_text is not None:
        text.append(f" [default: {each.default_text}]", "dim")
    name = Text(shown_name(each), "bold cyan")
    if isinstance(option, Argument):
        return name, text
    metavar = choices or option.metavar or ("NAME" if option.choices else "")
    return name, Text(metavar, "yellow"), text


def _summary(command: click.Command) -> Text:
    """The first paragraph of a command's help."""
    return _text(" ".join((command.help or "").split("\n\n")[0].split()))


def _text(markup: str) -> Text:
    text = Text.from_markup(markup)
    text.highlight_regex(_FLAG, "cyan")
    return text


def _examples(lines: tuple[str, ...]) -> Iterable[RenderableType]:
    if lines:
        heading = Text("\n Examples", "bold")
        yield from chain([heading], (Padding(Text(line), (0, 0, 0, 2)) for line in lines), [""])
