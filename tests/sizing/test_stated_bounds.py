"""The bounds, shares and steps that the room's pages and docstrings state, and what is meant where
nothing is said."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

from tonnage.sizing import (
    background,
    demand,
    explain,
    extrapolation,
    measured,
    mixture,
    notes,
    planner,
    precisions,
    progress,
    question,
    sensitivity,
    services,
    session_tiers,
    use_cases,
)
from tonnage.sizing.fleet import (
    autoscaling,
    existing,
    joint_choice,
    mixed,
    placement,
    purchase,
    routers,
    standby,
)

STATED: list[tuple[ModuleType, dict[str, Any]]] = [
    (background, {"LEVELS": 5, "HALVINGS": 4, "MOST_TRIED": 6, "DAY_HOURS": 24, "HOUR_S": 3_600}),
    (
        demand,
        {
            "PERCENTILE": 95.0,
            "SECONDS_PER_YEAR": 31_536_000,
            "HOURS_PER_DAY": 24,
            "DAYS_PER_WEEK": 7,
            "WORKING_HOURS": 8.0,
            "WORKING_DAYS": 5,
            "LEAST_RPS": 1e-300,
            "MOST_LOAD": 1e15,
            "LONGEST_JOB_S": 1e10,
            "MOST_ARRIVALS": 1e9,
        },
    ),
    (explain, {"MOST_STEPS": 50_000, "APART": 0.03, "BUSY": 0.5}),
    (explain, {"SHARES": (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.88, 0.94, 0.98)}),
    (
        extrapolation,
        {
            "LONGER": 1.25,
            "SHORTER": 0.125,
            "FEWEST": 20,
            "TAIL": 95,
            "DRAWN": 4_000,
            "STEADY": 0.85,
            "CLOSED_FROM": 0.95,
            "CLOSED_BELOW": 0.8,
            "CLOSED_TIMES": 1.6,
        },
    ),
    (
        extrapolation,
        {
            "GROWTH": (
                (0.5, 1.1),
                (0.8, 1.2),
                (0.85, 1.27),
                (0.87, 1.47),
                (0.9, 3.96),
                (0.92, 14.7),
            )
        },
    ),
    (measured, {"ROUNDING": 1e-9, "GPUS_PER_SYSTEM": 8}),
    (mixture, {"FEWEST_OF_A_CASE": 1_000, "MOST_OF_A_RUN": 400_000}),
    (
        notes,
        {
            "FRONT_END_ENDS": 0.85,
            "LARGE": 13e9,
            "MORE_SAVED": 3.0,
            "LEAST_SAVED": 0.05,
            "HALVES": 2.0,
            "SMALLER": 2.0,
            "FILLED": 64,
        },
    ),
    (
        precisions,
        {
            "ISL": 2_048,
            "OSL": 128,
            "SMALL": (1, 4),
            "LARGE": (16, 64),
            "NONE_BELOW": 1.2,
            "HIGH_FROM": 1.03,
            "EIGHT_BITS": ("fp8", "int8-sq"),
        },
    ),
    (
        question,
        {
            "SAMPLED": 4_000,
            "MOST_BLOCK": 512,
            "LOST": 0.06,
            "RECORDED": 512,
            "RECORDED_SESSIONS": 64,
            "GROUPS": 100,
        },
    ),
    (
        sensitivity,
        {
            "CHANGE": 0.2,
            "ROUNDED": (1.02, 1.06, 1.12),
            "STEEP": 1.3,
            "LEAST_FILLED": 0.25,
            "LEAST_SAVED": 0.05,
        },
    ),
    (services, {"MOST_SERVERS": 10_000, "MOST_SETTINGS": 1_000}),
    (
        session_tiers,
        {
            "SLOWDOWNS": (1.2, 1.5, 2.0, 3.0),
            "FIRST_TOKENS_S": (2.0, 5.0, 10.0),
            "FURTHER": 1.15,
            "NEAR": 0.65,
            "PLACES": 400,
            "SURELY": 1.2816,
            "DRAWS": 100,
            "OVER": (1.25, 1.5),
        },
    ),
    (use_cases, {"TRIED": 4}),
    (
        autoscaling,
        {
            "MOST_REQUESTS": 2_000_000,
            "FEWEST": 4,
            "SHARES": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1),
            "HOLD_S": 300.0,
            "HOLDS_S": (60.0, 900.0),
        },
    ),
    (existing, {"MOST_MONTHS": 600, "POOLED": 1.1, "HAIR": 1 - 1e-9}),
    (joint_choice, {"MOST_COMBINATIONS": 4_096, "FEW_KINDS": 3, "MOST_SIZED": 8}),
    (mixed, {"MOST_TIMES": 4, "MONTHS": 36, "EXACT": 64, "MOST_ADDED": 2_000}),
    (placement, {"MOST_STATES": 20_000}),
    (
        purchase,
        {
            "MOST_KINDS": 3,
            "MOST_RUNS": 24,
            "ROWS": 32,
            "STEPS": 64,
            "DOUBT": 0.03,
            "QUANTILES": (0.5, 0.7, 0.8, 0.9, 0.95, 0.98),
            "RANGE": 2.0,
            "HASTY": 0.05,
            "LEAST_SHARE": 0.01,
            "WORTH": 0.01,
        },
    ),
    (routers, {"OTHERS": ("random", "round-robin", "least-outstanding")}),
    (standby, {"MOST_UNITS": 1_000_000, "SETTLED": 64, "NOTHING": 1e-12}),
]


@pytest.mark.parametrize(("module", "stated"), STATED)
def test_the_bounds_that_are_stated(module: ModuleType, stated: dict[str, Any]) -> None:
    assert {name: getattr(module, name) for name in stated} == stated


@pytest.mark.parametrize(
    ("function", "meant"),
    [
        (autoscaling.autoscaling, {"broken_share": 0.0, "start_s": None, "workers": None}),
        (autoscaling.Kind, {"hold_s": 300.0, "warm": 0, "least": 1}),
        (autoscaling.FleetOverHours, {"profile": (), "recording": None, "lengths": True}),
        (demand.carried_by_existing, {"requests_per_second": 1.0}),
        (explain.step_terms, {"drafting": None, "ranks": 1}),
        (existing.existing, {"workers": None}),
        (existing.strongest, {"spare": 0}),
        (existing.whole_fleet, {"as_predicted": False}),
        (joint_choice.Option, {"sized": False, "left_out": False}),
        (joint_choice.chosen_together, {"spare": 0}),
        (mixed.Kind, {"owned": 0, "price": None}),
        (mixed.Fleets.run, {"load": 0.0}),
        (mixed.Fleets.holds, {"load": 0.0}),
        (mixed.Fleets.needed, {"least": 0, "load": 0.0, "by_sum": False}),
        (mixed.with_added, {"workers": None, "months": 36}),
        (mixture.Mixture, {"as_predicted": False, "by_priority": False}),
        (mixture.Case, {"priority": 0}),
        (planner.size, {"workers": None, "prune": True, "rows": True, "runs": None}),
        (planner.size, {"progress": progress.no_progress, "decided": None}),
        (precisions.format_gains, {"tp": None}),
        (progress.Steps, {"progress": progress.no_progress}),
        (progress.parallel, {"workers": None}),
        (purchase.Buyer, {"workers": None, "level": 0.0}),
        (purchase.Buyer.alone, {"share": 1.0}),
        (purchase.Buyer.answer, {"care": purchase.SURE}),
        (purchase.cheapest_purchase, {"workers": None}),
        (question.Pools, {"link_bytes_s": None, "overlap": False}),
        (sensitivity.again, {"best": None, "care": sensitivity.SURE}),
        (services.size_service, {"progress": None, "most_servers": None}),
        (services.choose_settings, {"progress": None}),
        (standby.Failures, {"repairers": None}),
        (standby.Reserve, {"unit": "system", "asked": None, "spare_instances": 0}),
        (standby.with_standby, {"unit": "system", "availability": None, "failures": None}),
        (standby.with_standby, {"spare_instances": 0}),
        (standby.standing_by, {"extra": 0}),
        (use_cases.Asked, {"priority": 0}),
        (use_cases.use_cases, {"reserve": None}),
        (measured.MeasuredQuestion, {"spare": 0, "data": "the measured points", "isl": None}),
    ],
)
def test_what_is_meant_where_nothing_is_said(function: Any, meant: dict[str, Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in meant} == meant
