"""The files of the page: complete as they are sent, nothing made of markup, colours that can be read."""

import re

import pytest

from heeler.console.assets import load

ASSETS = load()
SCRIPTS = {name: asset.data.decode() for name, asset in ASSETS.items() if name.endswith(".js")}
INDEX = ASSETS["index.html"].data.decode()
SHEET = ASSETS["style.css"].data.decode()
TEXT = ("ink", "soft", "link", "bad", "warn", "info")


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_module_that_is_imported_is_there_and_fetched_early(name: str) -> None:
    for wanted in re.findall(r'from "\./([\w.]+)"', SCRIPTS[name]):
        assert wanted in SCRIPTS
        assert f'<link rel="modulepreload" href="/static/{wanted}">' in INDEX


def test_everything_that_the_page_names_is_sent_with_it() -> None:
    assert re.findall(r"https?://(?!www\.w3\.org)", INDEX + SHEET) == []
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', INDEX):
        assert path.removeprefix("/static/") in ASSETS


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_makes_markup_or_code_of_text(name: str) -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)"
    )
    assert re.findall(forbidden, SCRIPTS[name]) == []


def test_no_markup_has_code_or_style_of_its_own() -> None:
    assert re.findall(r"\son\w+=|\sstyle=|javascript:|<script>|<style", INDEX) == []


def colours(selector: str) -> dict[str, str]:
    """The variables of a block of the style sheet."""
    block = SHEET[SHEET.index(selector) :]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block[: block.index("}")]))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("selector", [":root {", ':root[data-theme="dark"] {'])
def test_words_can_be_read_in_light_and_dark(selector: str) -> None:
    found = colours(selector)
    poor = {
        (name, ground): round(contrast(found[name], found[ground]), 2)
        for name in TEXT
        for ground in ("ground", "raised")
        if contrast(found[name], found[ground]) < 4.5
    }
    assert poor == {}


def test_the_systems_dark_and_the_chosen_dark_are_the_same() -> None:
    assert colours(':root[data-theme="dark"] {') == colours(':root:not([data-theme="light"]) {')
    assert colours(":root {").keys() == colours(':root[data-theme="dark"] {').keys()
