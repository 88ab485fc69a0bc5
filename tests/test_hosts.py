"""Only full names of public hosts are hosts that may be asked."""

from __future__ import annotations

import pytest

from scopes.pages.hosts import is_public


@pytest.mark.parametrize(
    "host",
    ["example.org", "docs.client.example", "a-b.c1.io", "bücher.example", "xn--p1ai.xn--p1ai"],
)
def test_a_full_name_is_public(host: str) -> None:
    assert is_public(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "localhost.",
        "example.org.",
        "intranet",
        "127.0.0.1",
        "127.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.0x1",
        "2130706433",
        "::1",
        "[::1]",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "localhost\u3002localdomain",
        "metadata.google.internal",
        "metadata.tencentyun.com",
        "instance-data.ec2.internal",
        "db.prod.svc",
        "printer.local",
        "127.0.0.1.nip.io",
        "app.localtest.me",
        "a..example",
        "-a.example",
        "exa%6dple.org",
        "a" * 64 + ".example",
        "a." * 130 + "example",
    ],
)
def test_what_is_no_full_name_or_leads_inside_is_not(host: str) -> None:
    assert not is_public(host)
