"""Pages for people on this machine: one local server under `lbx rate`, `lbx annotate` and `lbx browse`.

    place = listening(host, port, uds, others)      a socket, bound: who may reach it is decided here
    site = Site(place, routes, people)              a secret link for each person, every page behind it
    serve(site)                                     until Ctrl-C

Texts come from models and from elsewhere: templates escape every value, and spell out what would steer or deceive
(``lbx.base.visible``). Nothing is fetched from outside, and no page carries a script or a style of its own. What is
imported here needs lbx[web]; commands import it when they run.
"""

from lbx.web.documents import Document, Documents
from lbx.web.pages import page, saving
from lbx.web.serving import listening, serve
from lbx.web.site import Place, Site

__all__ = ["Document", "Documents", "Place", "Site", "listening", "page", "saving", "serve"]
