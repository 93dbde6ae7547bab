"""Questions from elsewhere name files of one folder alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.api.question.confined_paths import check_inside
from tonnage.errors import InputError

OUTSIDE = [
    "/etc/passwd",
    "../x.csv",
    "a/../../x.json",
    "2x/etc/mine.yaml",
    "~/x",
    "~root/.ssh",
    "a\\b",
    "fitted,/etc/hosts",
    "a\0b",
    "host=/dev/zero",
]


@pytest.mark.parametrize("value", OUTSIDE)
def test_no_value_leads_out_of_the_run_folder(value: str, tmp_path: Path) -> None:
    for asked in ({"trace": value}, {"lengths": {"isl": [value]}}):
        with pytest.raises(InputError, match="outside of the folder"):
            check_inside(asked, tmp_path)


def test_a_link_of_the_file_system_leads_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.csv").write_text("x")
    (tmp_path / "inside" / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(InputError, match="outside"):
        check_inside({"trace": "link.csv"}, tmp_path / "inside")


def test_hidden_files_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in (".env", ".git/config"):
        (tmp_path / name).write_text("x")
        with pytest.raises(InputError, match="outside"):
            check_inside({"trace": name}, tmp_path)
    check_inside({"share": ".5", "trace": "./trace.csv"}, tmp_path)


INSIDE = [
    "trace.csv",
    "meta-llama/Llama-3.1-8B",
    "5%/month",
    "50GB/s",
    "host=256GB@50GB/s,disk=4TB@6GB/s",
    "4000/300 0.1",
    "200k USD/year",
    "2/s for 60s, 20/s for 10s",
    "5x400",
]


@pytest.mark.parametrize("value", INSIDE)
def test_what_people_write_is_let_through(value: str, tmp_path: Path) -> None:
    check_inside({"any": value}, tmp_path)
