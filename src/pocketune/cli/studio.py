"""`pocketune studio`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.cli.command import command
from pocketune.options import option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.kit import Kit
    from pocketune.studio import Site


@dataclass(frozen=True, kw_only=True)
class StudioOptions:
    """What the page offers, and where it is."""

    kit: list[str] | None = option(
        "A kit that the page offers beside the bundled ones, checked as by [bold]kit check[/bold]; "
        "can be repeated.",
        default=None,
        metavar="KIT",
    )
    port: int = option(
        "Port of this machine; 0 for any that is free. A browser keeps photos by address, so "
        "another port has other photos.",
        default=8423,
        metavar="PORT",
        at_least=0,
        at_most=65535,
    )
    export: Path | None = option(
        "Write the page as static files instead of serving it.", default=None, metavar="FOLDER"
    )
    no_open: bool = option("Do not open a browser.", default=False)


@command(
    "pocketune studio",
    "pocketune studio --kit flowers.zip",
    "pocketune studio --export site/",
)
def studio(options: StudioOptions) -> None:
    """Collect photos, train and try the result in a page of your browser.

    Nothing leaves the browser: the page is served on 127.0.0.1 alone, and loads nothing from
    elsewhere. Ctrl-C closes it; photos and runs stay in the browser.
    """
    from pocketune.device.memory.sizes import format_size
    from pocketune.errors import counted
    from pocketune.studio import collect_site, export_site
    from pocketune.studio.site import bundled_kits

    site = collect_site([*bundled_kits(), *_checked(options.kit or [])])
    if options.export is None:
        _serve(site, options)
        return
    written = export_site(site, options.export)
    files = counted(len(site.files), "file")
    size = format_size(written)
    print(f"wrote {options.export} ({files}, {size}): put it on any static host with https")


def _checked(kits: list[str]) -> Iterator[tuple[str, Kit]]:
    """Name and kit of each, after a training step of it."""
    from pocketune.device.use.check import check_kit
    from pocketune.kit import Kit
    from pocketune.studio.site import bundled_kits

    bundled = {name for name, _ in bundled_kits()}
    for each in kits:
        if each in bundled and not Path(each).exists():
            continue  # offered anyway
        for _ in check_kit(each):
            pass
        yield Path(each).resolve().name.removesuffix(".zip"), Kit.open(each)


def _serve(site: Site, options: StudioOptions) -> None:
    import webbrowser

    from pocketune.studio import StudioServer

    with StudioServer(site, options.port) as server:
        print(f"the studio is at {server.url}", flush=True)
        print("Ctrl-C closes it; photos and runs stay in the browser", flush=True)
        if not options.no_open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("closed")
