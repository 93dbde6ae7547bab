"""What the prompts of a sizing question share, and the router that suits it."""

from __future__ import annotations

from dataclasses import replace

from tonnage.api.asked.lengths import LengthsFound, replays_lengths
from tonnage.api.asked.routers import BY_CONTENT, router_of
from tonnage.api.asked.sessions import sessions_of, tier_sizes
from tonnage.errors import InputError, option
from tonnage.simulator.router import DEFAULT_ROUTER
from tonnage.sizing.question import Load, Sharing, check_context, found_tokens
from tonnage.spec.model import Model
from tonnage.spec.recording import Recording
from tonnage.spec.scenario import Mode, Scenario
from tonnage.spec.sessions import block_tokens

OF_SESSIONS = ("turns", "shared_prefix")


def shared_blocks(recording: Recording, scenario: Scenario) -> Recording:
    """The recording with the ids of its blocks only where they say something: they fit the lengths, and some of them come again."""
    blocks, isl = recording.blocks, recording.isl
    known = blocks and isl and replays_lengths(scenario.lengths) and block_tokens(blocks, isl) is not None
    return recording if known and found_tokens(blocks, isl) > 0 else replace(recording, blocks=())


def sharing_of(scenario: Scenario, lengths: LengthsFound, recording: Recording | None) -> Sharing | None:
    """What the prompts of a scenario share; None where they share nothing.

    Args:
        scenario: what was asked.
        lengths: of what each turn adds, or of recorded requests.
        recording: the traffic that is replayed, with the ids of its blocks where these say something.

    Raises:
        InputError: a value that cannot be, sessions beside recorded requests, or memory for what nobody shares.
    """
    sessions, tiers = sessions_of(scenario, lengths), tier_sizes(scenario.search.kv_tiers)
    whose = ", ".join(map(option, OF_SESSIONS))
    if sessions is not None and (recording is not None or lengths.pairs is not None):
        raise InputError(f"{whose}: recorded requests have their own; give {option('isl')} and {option('osl')} without a trace or pairs")
    if sessions is not None and (not sessions.single or sessions.prefix_tokens):
        return Sharing(sessions=sessions, new=lengths.isl, tiers=tiers)
    if recording is not None and recording.blocks:
        return Sharing(recording=recording, tiers=tiers)
    if tiers:
        raise InputError(f"{option('kv_tiers')}: keep what prompts share, and these share nothing; give {option('turns')} or the like")
    return None


def check_lengths(model: Model, lengths: LengthsFound, sharing: Sharing | None) -> None:
    """Refuse requests, or whole conversations, that exceed the model's context.

    Raises:
        InputError: with the longest of them.
    """
    if sharing is None or sharing.sessions is None:
        check_context(model, lengths.isl, lengths.osl, lengths.pairs)
    elif (longest := sharing.sessions.longest(lengths.isl, lengths.osl)) > model.max_context:
        raise InputError(
            f"{', '.join(map(option, OF_SESSIONS))}: a conversation comes to {longest:,} tokens, more than the context of {model.name}, "
            f"{model.max_context:,}; ask for fewer turns or shorter ones"
        )


def check_load(sharing: Sharing | None, scenario: Scenario, mode: Mode, load: Load) -> None:
    """Refuse a job of conversations, clients that hold them one after another, and a controller of instances with caches.

    Raises:
        InputError: one of them.
    """
    if sharing is not None and scenario.scaling.autoscale:
        raise InputError(f"{option('autoscale')}: is found for prompts that share nothing so far; leave it out, or what they share")
    if sharing is not None and sharing.follows and mode == "offline":
        raise InputError(f"{option('turns')}: the requests of a job are all there at its start and follow no other; leave this out")
    if sharing is not None and sharing.follows and load == "closed":
        raise InputError(f"{option('turns')}: conversations are sized as an open loop; leave out {option('load')} closed")


def sized_router(name: str | None, sharing: Sharing | None) -> str:
    """The router of a plan; where none is named, one that real fleets have: least outstanding requests.

    Of conversations it is the hashing of sessions, and of a trace whose prompts name their blocks one that looks at prompts.

    Raises:
        InputError: no router, or one that looks at what prompts share where these share nothing.
    """
    follows = sharing is not None and sharing.follows
    usual = "session" if follows else "prefix-aware" if sharing is not None and sharing.recording is not None else DEFAULT_ROUTER
    found = router_of(name, by_content=sharing is not None or name in BY_CONTENT, default=usual)
    if sharing is None and found in BY_CONTENT:
        raise InputError(
            f"{option('router')}: {found} looks at what prompts share, and these share nothing; give {option('turns')}, "
            f"{option('shared_prefix')} or a trace with hash_ids, or another router"
        )
    return found
