"""Why a reply could not be read."""

from __future__ import annotations


class BrokenReply(Exception):
    """The peer sent something that is not the protocol; the message says what, in a few words.

    It never reaches a user as an exception: the client counts the request as failed with this reason.
    """
