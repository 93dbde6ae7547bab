"""TLS towards clients and towards backends, with certificates made here."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gateway.certificates import certificate, showing, trusting
from tests.gateway.fakes import asked, before, bounded, fine, get, outcomes, post, replies, silent, talk, until
from tonnage import api
from tonnage.bench.exact.schedule import Schedule
from tonnage.bench.exact.serve import exact_server
from tonnage.cli.main import run
from tonnage.errors import InputError
from tonnage.gateway.tls import Tls


def test_clients_speak_tls_and_nothing_older_than_1_2(tmp_path: Path) -> None:
    pem = certificate(tmp_path)

    async def test() -> None:
        async with before(fine, further={"tls": Tls(certificate=pem)}) as (running, [fake]):
            async with talk(running, trusting(pem)) as client:
                assert await client.ask(post(b"one")) == (200, b"ok")
                assert await client.ask(post(b"x" * 300_000)) == (200, b"ok")
                assert client.writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
            assert [len(got.body) for got in fake.got] == [3, 300_000]
            old = trusting(pem)
            old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", running.port, ssl=old)
            async with talk(running) as plain:
                plain.writer.write(get("/v1/health/live"))
                assert not (await plain.rest()).startswith(b"HTTP/")
            assert len(running.core.clients) == 0

    bounded(test())


def test_a_handshake_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        tls = Tls(certificate=certificate(tmp_path))
        async with before(fine, further={"tls": tls}, head_s=0.3) as (running, _), talk(running) as mute:
            assert await asyncio.wait_for(mute.rest(), 3) == b""

    bounded(test())


def test_a_renewed_certificate_is_shown_after_the_settings_were_read_again(tmp_path: Path) -> None:
    old = certificate(tmp_path, "old")
    pem = tmp_path / "current.pem"
    pem.write_bytes(old.read_bytes())

    async def test() -> None:
        async with before(fine, further={"tls": Tls(certificate=pem)}) as (running, _):
            new = certificate(tmp_path, "new")
            async with talk(running, trusting(old)) as client:
                assert (await client.ask(post()))[0] == 200
            pem.write_bytes(new.read_bytes())
            await running.renew(running.core.settings)
            async with talk(running, trusting(new)) as client:
                assert (await client.ask(post()))[0] == 200
            pem.write_text("nothing")
            with pytest.raises(InputError, match="cannot be used"):
                await running.renew(running.core.settings)
            async with talk(running, trusting(new)) as client:
                assert (await client.ask(post()))[0] == 200

    bounded(test())


def test_a_backend_is_met_by_https_and_its_certificate_is_checked(tmp_path: Path) -> None:
    good, other = certificate(tmp_path), certificate(tmp_path, "other", "DNS:elsewhere.example")

    async def served(shown: Path, tls: Tls) -> tuple[int, str]:
        async with before(fine, further={"tls": tls}, backend_tls=showing(shown)) as (running, _):
            return (await asked(running, post()))[0], running.core.backends[0].fault

    async def test() -> None:
        assert await served(good, Tls(backend_ca=good)) == (200, "")
        assert await served(other, Tls(verify=False)) == (200, "")
        for shown, tls, words in (
            (good, Tls(), "self-signed certificate"),
            (good, Tls(backend_ca=other), "self-signed certificate"),
            (other, Tls(backend_ca=other), "IP address mismatch"),
        ):
            status, fault = await served(shown, tls)
            assert status == 503
            assert "its certificate is not accepted" in fault
            assert words in fault

    bounded(test())


def test_a_certificate_that_is_no_longer_accepted_is_told_and_goes_nowhere(tmp_path: Path) -> None:
    good = certificate(tmp_path)

    async def test() -> None:
        async with before(fine, further={"tls": Tls(backend_ca=good)}, backend_tls=showing(good), health_s=60.0) as (running, [fake]):
            await fake.end()
            fake.tls = showing(certificate(tmp_path, "other"))
            await fake.begin()
            status, body = await asked(running, post())
            assert status == 502
            assert b"certificate is not accepted" in body
            assert fake.got == []

    bounded(test())


def test_streams_over_tls_on_both_sides_are_byte_for_byte(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\ndata:\r\n" * 20_000 + b"0\r\n\r\n"
    tls = Tls(certificate=pem, backend_ca=pem)

    async def test() -> None:
        async with before(replies(stream), further={"tls": tls}, backend_tls=showing(pem)) as (running, _):
            async with talk(running, trusting(pem)) as client:
                client.writer.write(post(b"{}", "/v1/completions", "Connection: close"))
                assert (await client.rest()).partition(b"\r\n\r\n")[2] == stream.partition(b"\r\n\r\n")[2]
            assert outcomes(running) == {"ok": 1}
        async with before(silent, further={"tls": tls}, backend_tls=showing(pem)) as (running, _):
            async with talk(running, trusting(pem)) as client:
                client.writer.write(post())
                await until(lambda: running.core.in_flight == 1)
            await until(lambda: running.core.in_flight == 0)  # that client has left

    bounded(test())


def test_files_that_cannot_be_used_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pem, nothing, locked = certificate(tmp_path), tmp_path / "nothing.pem", tmp_path / "locked.key"
    nothing.write_text("nothing")
    subprocess.run(["openssl", "genrsa", "-aes128", "-passout", "pass:abcd", "-out", str(locked), "2048"], check=True, capture_output=True)
    http, https = ["gateway", "--backend", "127.0.0.1:1"], ["gateway", "--backend", "https://127.0.0.1:1"]
    for flags, words in (
        ([*http, "--tls-cert", str(tmp_path / "none.pem")], "--tls-cert"),
        ([*http, "--tls-cert", str(nothing)], "--tls-cert"),
        ([*http, "--tls-cert", str(pem), "--tls-key", str(nothing)], "--tls-cert"),
        ([*http, "--tls-cert", str(pem), "--tls-key", str(locked)], "password"),
        ([*http, "--tls-key", str(pem)], "--tls-cert"),
        ([*http, "--backend-ca", str(pem)], "--backend-ca"),
        ([*http, "--no-verify-backends"], "--verify-backends"),
        ([*https, "--backend-ca", str(nothing)], "--backend-ca"),
        ([*https, "--backend-ca", str(pem), "--no-verify-backends"], "--backend-ca"),
    ):
        assert run(flags) == 2, flags
        printed = capsys.readouterr().err
        assert words in printed
        assert len(printed.splitlines()) == 1


def test_the_command_serves_https(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    with exact_server(Schedule(ttft_s=0.0, itl_s=0.001), seconds=60) as url:
        command = [sys.executable, "-m", "tonnage", "gateway", "--backend", url, "--port", "0", "--tls-cert", str(pem)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            where = process.stderr.readline().split(" on ")[1].strip()
            assert where.startswith("https://127.0.0.1:")
            asking = urllib.request.Request(f"{where}/completions", json.dumps({"prompt": "a b", "max_tokens": 5}).encode())
            with urllib.request.urlopen(asking, context=trusting(pem), timeout=10) as answer:
                assert answer.status == 200
            with pytest.raises(urllib.error.URLError):
                urllib.request.urlopen(asking, timeout=10)
            process.terminate()
            assert process.wait(timeout=15) == 0


def test_a_file_says_it_too(tmp_path: Path) -> None:
    pem, path = certificate(tmp_path), tmp_path / "gateway.yaml"
    path.write_text(f"backends: [https://a:1]\ntls_cert: {pem}\nbackend_ca: {pem}\n")
    found = api.gateway_from(path, {})
    assert found.tls == Tls(certificate=pem, backend_ca=pem)
    assert replace(found.tls, certificate=None).server_context() is None
