"""Keys: what opens the dashboard: tickets that are used up, a cookie, and a token if one was given."""

from __future__ import annotations

import hmac
import secrets

from redraft.errors import ConfigError

SHORTEST = 16
"""Characters that a token which a person chose must have: who may try for long must not succeed."""


class Keys:
    """Hold the keys of one running dashboard.

    A ticket stands in an address that is printed, so it is good once; what it is exchanged for is the cookie.
    A token was given by who started the dashboard, and is good as long as it runs. Raises `ConfigError` for a
    token that is too short.
    """

    def __init__(self, token: str | None = None) -> None:
        if token is not None and (len(token) < SHORTEST or not token.isascii() or not token.isprintable()):
            raise ConfigError(
                f"The token (--token, REDRAFT_UI_TOKEN) must have at least {SHORTEST} printable ASCII "
                "characters; leave it out to have one made."
            )
        self.cookie = secrets.token_urlsafe(32)
        self._token = token
        self._tickets: set[str] = set()

    def ticket(self) -> str:
        """Return a new ticket."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    def redeem(self, token: str) -> bool:
        """Say whether this is the token or a ticket, which is used up by it."""
        if self.is_token(token):
            return True
        known = [ticket for ticket in self._tickets if _same(token, ticket)]
        self._tickets.difference_update(known)
        return bool(known)

    def is_token(self, given: str) -> bool:
        """Say whether this is the token that was given."""
        return self._token is not None and _same(given, self._token)

    def opens(self, cookie: str | None) -> bool:
        """Say whether a browser's cookie is the one."""
        return cookie is not None and _same(cookie, self.cookie)


def _same(given: str, known: str) -> bool:
    """Compare without telling by the time it takes how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), known.encode())
