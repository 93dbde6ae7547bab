"""Several models on one fleet: the lines of the first screen on placement, a lost system, what is
saved and what is not counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.report.example_plan import without_answer
from tests.report.plans.screens import sized
from tests.report.plans.two_models import alone, case
from tests.report.plans.two_models import several as alike
from tonnage.plan.use_cases import (
    Arrangement,
    NotShared,
    Placed,
    PoolSystems,
    SystemLost,
    UseCasePool,
    UseCases,
)
from tonnage.report.plans.screen import BRIEF, MOST
from tonnage.report.plans.use_cases import (
    brief_lines,
    hours_text,
    lost_text,
    placement_text,
    saved_text,
    slices_text,
    smaller_systems_text,
    use_cases_report,
    use_cases_screen,
    use_cases_why,
)
from tonnage.report.writers.terminal import WIDEST, terminal

NAMES = ("Chat", "Code")


def pool(name: str, tp: int, instances: int, exactly: float) -> UseCasePool:
    return UseCasePool(
        gpu="h100-sxm-80gb",
        precision="fp8",
        tp=tp,
        engine="vllm-0.32",
        engine_preset="vllm-0.32",
        system="dgx-h100",
        gpus_per_system=8,
        knobs=None,
        instances=instances,
        instances_exact=exactly,
        cases=(case(name),),
    )


PLACEMENT = (
    Placed(system="dgx-h100", first=1, systems=3, instances=(2, 0), free_gpus=0),
    Placed(system="dgx-h100", first=4, systems=1, instances=(1, 3), free_gpus=1),
)
LOST = SystemLost(instances=(2, 3), without_gpus=(2, 0))


def fleet(**changed: Any) -> Arrangement:
    values = {
        "pools": (pool("Chat", 4, 7, 6.1), pool("Code", 1, 3, 2.2)),
        "systems": (PoolSystems(system="dgx-h100", systems=4, gpus=32),),
        "placement": PLACEMENT,
        "lost": LOST,
        "owned_usd_per_year": 600_000.0,
    }
    return Arrangement(**{**values, **changed})


def several(choice: Arrangement | None = None, **changed: Any) -> UseCases:
    apart = fleet(
        systems=(PoolSystems(system="dgx-h100", systems=6, gpus=48),), owned_usd_per_year=850_000.0
    )
    values = {
        "names": NAMES,
        "plans": (alone(), alone()),
        "separate": fleet() if choice is None else choice,
        "shared": None,
        "not_shared": None,
        "chosen": "separate",
        "alone": apart,
    }
    return UseCases(**{**values, **changed})


def test_the_placement_names_each_system_with_its_instances() -> None:
    found = several()
    text = "dgx-h100 1 to 3: 2 × Chat (TP 4) each; dgx-h100 4: 1 × Chat (TP 4) + 3 × Code (TP 1)"
    assert placement_text(found, found.choice) == f"{text}, 1 GPU free"
    assert placement_text(found, fleet(pools=fleet().pools[:1])) == "", "one pool fills all of them"
    many = fleet(placement=PLACEMENT * 5)
    assert placement_text(found, many).endswith("; … and 4 more kinds of contents")
    page = " ".join(terminal(use_cases_report(found)).split())
    assert "dgx-h100 1 to 3 3 2 × Chat (TP 4) each 0 each" in page
    assert "Placement" in terminal(use_cases_why(found))
    assert any(line.startswith("Placement") for line in brief_lines(found))


def test_instances_on_several_systems_and_systems_on_standby_have_words() -> None:
    wide = Placed(system="dgx-h100", first=1, systems=4, instances=(1, 0), free_gpus=0, spans=2)
    standby = Placed(system="dgx-h100", first=5, systems=1, instances=(0, 0), free_gpus=8)
    text = placement_text(several(), fleet(placement=(wide, standby)))
    assert text == (
        "dgx-h100 1 to 4: 1 × Chat (TP 4), an instance on 2 systems; dgx-h100 5: nothing, on standby"
    )


@pytest.mark.parametrize(
    ("without", "ending"),
    [
        ((0, 0), "at worst; all of them find free GPUs on the other systems"),
        (
            (2, 0),
            "at worst; no free GPUs remain for 2 Chat; \ue000spare\ue001 1 adds a system for them",
        ),
        (
            (2, 3),
            "at worst, without free GPUs for them elsewhere; \ue000spare\ue001 1 adds a system for them",
        ),
    ],
)
def test_what_a_lost_system_takes(without: tuple[int, int], ending: str) -> None:
    lost = replace(LOST, without_gpus=without)
    assert lost_text(several(), fleet(lost=lost)) == f"takes 2 of 7 Chat and 3 of 3 Code {ending}"
    assert lost_text(several(), fleet(lost=None)) == "", "a file of before has none"


def test_what_is_saved_against_a_fleet_for_each() -> None:
    found = several()
    against = "against a fleet for each use case (6 × dgx-h100)"
    assert saved_text(found) == f"2 systems (16 GPUs), 250,000 USD a year on-prem {against}"
    assert saved_text(several(chosen="separate", separate=found.alone)) == f"nothing {against}"
    assert saved_text(several(alone=None)) == ""


def test_peaks_at_different_hours_are_named_and_not_counted() -> None:
    def of(*rates: float) -> Any:
        plan = alone()
        return replace(plan, demand=replace(plan.demand, profile=rates))

    found = several(plans=(of(10.0, 2.0, 1.0), of(0.0, 0.0, 4.0)))
    assert hours_text(found) == (
        "the peaks are at different hours (Chat in hour 0 and Code in hour 2), and in the busiest"
        " hour 55% of the GPUs have work; not counted, as instances keep their model"
    )
    assert hours_text(several(plans=(of(10.0, 2.0), of(4.0, 1.0)))) == "", "together"
    assert hours_text(several(plans=(of(10.0, 2.0), of(4.0, 1.0, 1.0)))) == "", "unlike days"
    assert hours_text(several()) == "" or several().plans[0].demand.profile


def test_a_fleet_that_is_hardly_used_names_a_smaller_server_and_slices() -> None:
    little = fleet(pools=(pool("Chat", 1, 1, 0.2), pool("Code", 1, 1, 0.1)))
    assert smaller_systems_text(little) == (
        "2 GPUs would do; \ue000system\ue001 2xh100-sxm-80gb counts in servers of 2 GPUs"
    )
    assert smaller_systems_text(fleet()) == ""
    assert slices_text(several(), little) == (
        "of a GPU for each, Chat 20% and Code 10% is used; \ue000system\ue001"
        " 4xh100-sxm-80gb-mig-1g.20gb for these files alone asks whether slices of one GPU (MIG)"
        " carry them"
    )
    busy = fleet(pools=(pool("Chat", 1, 1, 0.2), pool("Code", 1, 1, 0.7)))
    assert slices_text(several(), busy) == ""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 9, 30])
@pytest.mark.parametrize("apart", [False, True])
def test_it_has_forty_lines_at_most_and_the_answer(
    count: int, columns: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = alike(count, apart=apart)
    lines = terminal(use_cases_screen(found)).splitlines()
    assert len(lines) <= MOST
    assert max(map(len, lines)) <= min(columns, WIDEST)
    words = " ".join(" ".join(lines).split())
    assert f"Answer {count} × dgx-h100 (" in words
    assert "every limit of each use case holds at the 80% asked" in words
    assert "Use case 1, by itself: Nothing that was asked for reaches 80%" in words
    assert "full\ue001 prints each use case by itself" in words
    assert len(brief_lines(found)) <= BRIEF


def test_no_arrangement_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    why = NotShared(code="no-deployment", case="use case 1")
    plans = (sized(), without_answer())
    found = replace(alike(2), plans=plans, shared=None, separate=None, not_shared=why, chosen=None)
    text = terminal(use_cases_screen(found))
    assert "Answer       no arrangement is possible: use case 1 has no deployment inside" in text
    assert len(text.splitlines()) <= MOST
