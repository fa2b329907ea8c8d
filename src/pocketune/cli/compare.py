"""`pocketune compare`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pocketune.cli.command import command, given
from pocketune.cli.errors import print_error
from pocketune.cli.method import parse_options
from pocketune.cli.options import (
    JsonOption,
    KitStepOptions,
    NetworkOptions,
    ShapeOptions,
    argument,
    check_network_given,
    of_method,
    of_network,
    shown_name,
)
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError, author_half
from pocketune.options import option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import JustifyMethod
    from rich.table import Table

    from pocketune.comparison import Grid
    from pocketune.comparison.row import Row

PANEL = "The comparison"
_WITH_TOML = {"photos", "out", "ray", "keep_runs", "json"}


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is compared, and where the results go."""

    photos: list[str] = argument(
        "Sets of labeled photos, as for train; or one .toml file that describes the comparison.",
        metavar="PHOTOS...",
    )
    kit: list[str] | None = option(
        "A finished kit to compare; can be repeated.",
        default=None,
        metavar="KIT",
        unset="the bundled kits, without --network",
        panel=PANEL,
    )
    seeds: int = option(
        "Number of runs of each row, with seeds from --seed on.",
        default=1,
        metavar="N",
        at_least=1,
        panel=PANEL,
    )
    out: Path = option(
        "Folder for tables and runs. A second call continues there.",
        default=Path("compare"),
        metavar="FOLDER",
        panel=PANEL,
    )
    rate: list[str] | None = option(
        "Learning rate to choose from, on a fifth of the training photos; can be repeated.",
        default=None,
        metavar="RATE",
        panel=PANEL,
    )
    keep_runs: bool = option(
        "Keep the trained networks, not only records and logs.", default=False, panel=PANEL
    )
    ray: bool = option(
        "Distribute the runs over Ray (installed separately).", default=False, panel=PANEL
    )


@dataclass(frozen=True, kw_only=True)
class Networks:
    """The networks."""

    network: list[str] | None = of_network(
        "A network to compare; can be repeated. See [bold]pocketune networks[/bold].",
        default=None,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class Methods:
    """The methods, and their options."""

    method: list[str] | None = of_method(
        "A method to compare; can be repeated. See [bold]pocketune methods[/bold].",
        default=None,
        metavar="NAME",
    )
    method_option: list[str] | None = of_method(
        "Option of the methods that have it; can be repeated.",
        default=None,
        metavar="NAME=VALUE",
    )


@command(
    "pocketune compare photos/",
    "pocketune compare photos/ --kit last --kit blocks --seeds 3",
    "pocketune compare photos/ --network mobilenet_v2 --weights w.safetensors \\",
    "    --method last --method mobiletl --epochs 5 --out compare/",
    "pocketune compare compare.toml --out compare/",
    goes_on=True,
)
def compare(
    options: CompareOptions,
    networks: Networks,
    network: NetworkOptions,
    shape: ShapeOptions,
    methods: Methods,
    step: KitStepOptions,
    settings: TrainSettings,
    output: JsonOption,
) -> None:
    """Compare networks, methods and kits on photos, over several seeds.

    Each run is a process of its own. What is finished is not repeated, and Ctrl-C loses nothing.
    The tables are compare.md, compare.csv and compare.tex; compare.json holds every run, and is
    also printed with --json.
    """
    from pocketune.comparison import Grid
    from pocketune.comparison import compare as compare_grid

    if any(path.endswith(".toml") for path in options.photos):
        _check_alone(options.photos)
        grid = Grid.read(options.photos[0])
    else:
        check_network_given(given())
        created = {**asdict(network), **asdict(shape)}
        grid = _grid(options, networks, created, methods, asdict(step), settings)
    show = print_error if output.json else _show
    result = compare_grid(
        grid, options.out, ray=options.ray, keep_runs=options.keep_runs, show=show
    )
    if output.json:
        print(json.dumps(result.to_dict()))
    else:
        _show_tables(result.rows)
        print(f"\nwritten to {options.out}")
    if result.failed:
        raise PocketuneError(
            f"{len(result.failed)} of {len(result.cells)} runs failed, such as "
            f"{result.failed[0]}; the same command repeats them"
        )


def _show(line: str) -> None:
    print(line, flush=True)


def _show_tables(rows: Sequence[Row]) -> None:
    """Draw the table on a terminal; elsewhere print it as Markdown, for a file."""
    from rich.console import Console

    from pocketune.comparison.tables import note_on, to_markdown

    console = Console()
    print()
    if not console.is_terminal:
        print(to_markdown(rows), end="")
        return
    console.print(_drawn(rows))
    console.print(note_on(rows), highlight=False, markup=False)


def _drawn(rows: Sequence[Row]) -> Table:
    """The table for a terminal; the name of the only set of photos is its title."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from pocketune.comparison.tables import columns_of

    columns, sets = columns_of(rows), {row.photos for row in rows}
    title = None
    if len(sets) == 1:
        title = escape(rows[0].photos)
        columns = [column for column in columns if column.title != "photos"]
    table = Table(box=SIMPLE_HEAD, padding=0, title=title, title_justify="left")
    for column in columns:
        number = column.is_number
        justify: JustifyMethod = "right" if number else "left"
        heading = column.title.replace(" ", "\n")
        table.add_column(heading, justify=justify, no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*(escape(column.text(row)) for column in columns))
    return table


def _check_alone(photos: list[str]) -> None:
    """A file describes the whole comparison."""
    for name, each in given().items():
        if name not in _WITH_TOML:
            raise click.BadParameter(
                "cannot be combined with a .toml file: write it there", param_hint=shown_name(each)
            )
    if len(photos) > 1:
        raise click.BadParameter("give one .toml file, or photos", param_hint="PHOTOS")


def _grid(
    options: CompareOptions,
    networks: Networks,
    network: dict[str, Any],
    methods: Methods,
    step: dict[str, Any],
    settings: TrainSettings,
) -> Grid:
    from pocketune.comparison import Grid
    from pocketune.data import task_of
    from pocketune.kit.bundled import list_kits

    created = {**network, "size": step["size"], "batch": step["batch"]}
    trained = {name: step[name] for name in ("frozen_bits", "label_smoothing", "loss_stride")}
    kits: Sequence[str] = options.kit or []
    if not kits and not networks.network:
        kits = list_kits(task_of(options.photos[0]).name)
    names = methods.method or (["blocks"] if networks.network else [])
    chosen = _divided(parse_options(methods.method_option), names)
    plain = {
        each.name: getattr(settings, each.name)
        for each in fields(settings)
        if getattr(settings, each.name) != each.default and each.name != "seed"
    }
    return Grid.from_dict(
        {
            "photos": options.photos,
            "networks": [{"network": name, **created} for name in networks.network or []],
            "methods": [{"method": name, "options": chosen[name], **trained} for name in names],
            "kits": kits,
            "seeds": list(range(settings.seed, settings.seed + options.seeds)),
            "settings": plain,
            "rates": [_rate(text) for text in options.rate or []],
        },
        "the command line",
    )


def _divided(options: dict[str, Any], names: list[str]) -> dict[str, dict[str, Any]]:
    """The options that each of the methods has.

    Raises:
        PocketuneError: No method has one of the options.
    """
    if not options:
        return {name: {} for name in names}
    with author_half("an option of a method"):
        from pocketune.methods import create_method, method_to_dict

    known = {
        name: {own for term in name.split("+") for own in method_to_dict(create_method(term))}
        for name in names
    }
    for each in options:
        if not any(each in names_of for names_of in known.values()):
            raise PocketuneError(f"none of the methods {', '.join(names)} has the option {each}")
    return {name: {k: v for k, v in options.items() if k in known[name]} for name in names}


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number", param_hint="--rate") from None
