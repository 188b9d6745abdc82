"""Local web server of `lbx rate`, `lbx annotate` and `lbx browse`.

    with listening(host, port, uds, others=others) as site_socket:   bind a socket, and decide who may reach it
        site = Site(site_socket, routes, people)   create a secret link for each person, required for every page
        serve(site)                                serve until Ctrl-C

Texts come from models and other untrusted sources: templates escape every value and make control and other deceptive
characters visible (``lbx.base.visible``). Pages load no external resources and have no inline scripts or styles.
This package needs lbx[web]; commands import it when they run.
"""

from lbx.web.documents import Documents, SearchableDocument
from lbx.web.pages import form_route, page
from lbx.web.serving import listening, serve
from lbx.web.site import Site, SiteSocket

__all__ = ["Documents", "SearchableDocument", "Site", "SiteSocket", "form_route", "listening", "page", "serve"]
