"""The studio: a page that collects photos, trains kits and uses the result, all in the browser.

The page is written in TypeScript, in `web/` of the project, and built into `site/` beside this
file. Python serves it on the loopback interface, or exports it as a folder of static files.
"""

from pocketune.studio.export import export_site
from pocketune.studio.server import StudioServer
from pocketune.studio.site import SITE, Site, collect_site

__all__ = ["SITE", "Site", "StudioServer", "collect_site", "export_site"]
