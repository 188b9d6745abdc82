"""Local web server of `lbx rate`, `lbx annotate` and `lbx browse`.

    with listening(host, port, uds, others=others) as site_socket:   bind a socket
        site = Site(site_socket, routes, people)   create a secret link for each person, which all pages require
        serve(site)                                serve until Ctrl-C

Texts come from models and other untrusted sources. Templates escape all values and make control and other deceptive
characters visible (``lbx.base.visible``). Pages load no external resources and contain no inline scripts or styles.
This package needs lbx[web], and is imported only by commands that need it.
"""

from lbx.web.documents import Documents, SearchableDocument
from lbx.web.pages import form_route, page
from lbx.web.serving import listening, serve
from lbx.web.site import Site, SiteSocket

__all__ = ["Documents", "SearchableDocument", "Site", "SiteSocket", "form_route", "listening", "page", "serve"]
