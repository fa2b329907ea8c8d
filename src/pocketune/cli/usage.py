"""Combinations of options that make no sense."""

from __future__ import annotations

from typing import Any

import typer

from pocketune.cli.options import METHOD_PANEL, NETWORK_PANEL
from pocketune.errors import PocketuneError

_ON_RESUME = {"resume", "photos", "budget", "engine", "device"}


def check_train_usage(context: typer.Context) -> None:
    """Refuse what ``train`` cannot mean.

    Raises:
        typer.BadParameter: Two options exclude each other, or one needs another; exit code 2.
    """
    given = {parameter.name: parameter for parameter in _given(context)}
    fixed = (NETWORK_PANEL, METHOD_PANEL)  # in a kit
    made = [parameter for parameter in given.values() if _panel(parameter) in fixed]
    if "resume" in given:
        for name, parameter in given.items():
            if name not in _ON_RESUME:
                raise typer.BadParameter(
                    "cannot be combined with --resume: a resumed run keeps its settings; only "
                    "PHOTOS, --budget, --engine and --device can be given",
                    param_hint=_option(parameter),
                )
    elif "photos" not in given:
        raise typer.BadParameter("give the photos to train on", param_hint="PHOTOS")
    elif "kit" in given and made:
        raise typer.BadParameter(
            "cannot be combined with --kit: a kit's network and method are fixed",
            param_hint=_option(made[0]),
        )
    elif made and "network" not in given:
        raise typer.BadParameter("needs --network", param_hint=_option(made[0]))
    if "device" in given and context.params["engine"] in (None, "onnx") and "resume" not in given:
        raise typer.BadParameter("needs --engine torch", param_hint="--device")


def refuse_beside_file(context: typer.Context, file: str) -> None:
    """Refuse what ``retrain`` would not heed where it is given a network in a file.

    Raises:
        PocketuneError: An option describes the network, which the file does already.
    """
    for parameter in _given(context):
        if _panel(parameter) == NETWORK_PANEL:
            raise PocketuneError(
                f"{_option(parameter)} cannot be used here: {file} already holds a network and "
                "its weights"
            )


def _given(context: typer.Context) -> list[Any]:
    def is_given(parameter: Any) -> bool:
        source = context.get_parameter_source(parameter.name)
        return source is not None and source.name == "COMMANDLINE"

    return [parameter for parameter in context.command.params if is_given(parameter)]


def _panel(parameter: Any) -> str | None:
    panel: str | None = getattr(parameter, "rich_help_panel", None)
    return panel


def _option(parameter: Any) -> str:
    name: str = parameter.opts[0]
    return name if name.startswith("-") else parameter.name.upper()
