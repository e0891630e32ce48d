"""A real slurmrestd over TCP with tokens, and behind a proxy that speaks TLS, which it does not itself up to 24.05."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from needs import need
from slurmsandbox import Sandbox
from tlsproxy import Authority, tls_proxy

from heeler.slurm.clients import Clients
from heeler.slurm.errors import RestError, RestTlsError
from heeler.slurm.jobs import JobsAnswer
from heeler.slurm.rest import Rest
from heeler.slurm.settings import SlurmSettings
from heeler.slurm.sources import Outage, Polled, SlurmSource

pytestmark = pytest.mark.slurm


@pytest.fixture
def token(accounted: Sandbox, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(accounted.rest.token())
    return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    need("openssl")
    return Authority(tmp_path_factory.mktemp("tls"))


def settings(url: str, token: Path, ca: Path | None = None, **more: Any) -> SlurmSettings:
    found = SlurmSettings(
        source="rest",
        rest_url=url,
        rest_user="root",
        token_file=str(token),
        rest_ca=None if ca is None else str(ca),
        timeout_s=10.0,
        **more,
    )
    found.validate()
    return found


async def jobs(asked: SlurmSettings) -> Polled[JobsAnswer]:
    return await SlurmSource(Clients(asked)).jobs()


async def test_over_tls_the_answer_is_that_of_tcp(accounted: Sandbox, token: Path, authority: Authority) -> None:
    job = accounted.submit("sleep 60", "--gres=gpu:2")
    accounted.wait_job(job, "RUNNING")
    plain = await jobs(settings(accounted.rest.url, token))
    with tls_proxy(authority.certificate("IP:127.0.0.1"), accounted.rest.port) as proxy:
        safe = await jobs(settings(proxy.url, token, authority.file))
    assert isinstance(safe.answer, JobsAnswer), safe.answer
    assert isinstance(plain.answer, JobsAnswer), plain.answer
    assert job in {one.id for one in safe.answer.jobs}
    assert [(one.id, one.nodes, one.gpus) for one in safe.answer.jobs] == [
        (one.id, one.nodes, one.gpus) for one in plain.answer.jobs
    ]


@pytest.mark.parametrize(
    ("trusted", "names", "days", "why"),
    [
        (False, "IP:127.0.0.1", 1, "not to be trusted: unable to get local issuer certificate"),
        (True, "DNS:head.example", 1, "not to be trusted: IP address mismatch"),
        (True, "IP:127.0.0.1", -1, "not to be trusted: certificate has expired"),
    ],
    ids=["an authority that is not ours", "another host's", "expired"],
)
async def test_a_certificate_that_is_not_to_be_trusted_is_said_and_no_token_is_sent(
    accounted: Sandbox, token: Path, authority: Authority, tmp_path: Path, *, trusted: bool, names: str, days: int,
    why: str,
) -> None:  # fmt: skip
    ca = authority if trusted else Authority(tmp_path, "other")
    with tls_proxy(authority.certificate(names, days=days), accounted.rest.port) as proxy:
        polled = await jobs(settings(proxy.url, token, ca.file))
        assert isinstance(polled.answer, Outage)
        assert why in polled.answer.why
        rest = Rest(proxy.url, "root", str(token), str(ca.file))
        with pytest.raises(RestTlsError, match="slurmrestd: GET /openapi/v3: its certificate"):
            rest.version("slurm", 10.0)
        assert proxy.passed_bytes == 0


async def test_https_to_a_slurmrestd_without_tls_is_said(accounted: Sandbox, token: Path, authority: Authority) -> None:
    url = accounted.rest.url.replace("http:", "https:")
    polled = await jobs(settings(url, token, authority.file))
    assert isinstance(polled.answer, Outage)
    assert "does not speak TLS" in polled.answer.why


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("rubbish\n", "no certificate in it")])
async def test_a_file_of_certificates_that_is_none_is_named(
    accounted: Sandbox, token: Path, tmp_path: Path, text: str | None, why: str
) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    polled = await jobs(settings(accounted.rest.url.replace("http:", "https:"), token, path))
    assert isinstance(polled.answer, Outage)
    assert f"rest_ca {path}: {why}" in polled.answer.why


async def test_where_tls_fails_the_commands_are_asked_and_that_is_logged_once(
    accounted: Sandbox, token: Path, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Authority(tmp_path, "other")
    with tls_proxy(authority.certificate("IP:127.0.0.1"), accounted.rest.port) as proxy:
        chosen = settings(proxy.url, token, other.file, conf=str(accounted.conf), bin_dir="/usr/bin")
        source = SlurmSource(Clients(replace(chosen, source="auto")))
        for _ in range(3):
            polled = await source.jobs()
            assert isinstance(polled.answer, JobsAnswer)
            assert "slurmrestd" not in polled.source
    said = [line for line in capsys.readouterr().out.splitlines() if "asked_otherwise" in line]
    assert len(said) == 1
    assert "not to be trusted" in said[0]


async def test_a_token_that_expires_is_an_outage_until_it_is_renewed(accounted: Sandbox, token: Path) -> None:
    token.write_text(accounted.rest.token(lifespan_s=1))
    source = SlurmSource(Clients(settings(accounted.rest.url, token)))
    time.sleep(2.1)
    polled = await source.jobs()
    assert isinstance(polled.answer, Outage)
    assert re.search(r"status (401|500|511) .*\(the token expired [1-9] s ago\)", polled.answer.why), polled.answer.why
    assert token.read_text().strip() not in polled.answer.why
    token.write_text(accounted.rest.token())
    assert isinstance((await source.jobs()).answer, JobsAnswer)


def test_nobody_listens_there_is_a_plain_error(accounted: Sandbox, token: Path) -> None:
    accounted.rest.stop()
    try:
        with pytest.raises(RestError, match="Connection refused"):
            Rest(accounted.rest.url, "root", str(token)).version("slurm", 5.0)
    finally:
        accounted.rest.start()
