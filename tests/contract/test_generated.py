"""What is generated is what the sources say, and the documents are valid."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import goldens
import pytest
import yaml
from jsonschema import Draft202012Validator

from heeler.bus import ROUTES

KINDS = sorted(ROUTES)


@pytest.mark.parametrize("tool", ["gen.py", "vectors.py", "subject_page.py"])
def test_what_is_generated_is_up_to_date(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, goldens.SCHEMAS / "tools" / tool, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_a_schema(kind: str) -> None:
    schema = goldens.schema(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == kind
    assert schema["$id"] == f"heeler:{goldens.snake(kind)}.v1"
    assert schema["additionalProperties"] is True, "a reader ignores what it does not know"
    assert set(schema["required"]) <= schema["properties"].keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described_and_every_enum_has_a_way_out(kind: str) -> None:
    for where, rules in walk(goldens.schema(kind)):
        if "enum" in rules:
            assert "unknown" in rules["enum"], where
        for key, prop in rules.get("properties", {}).items():
            assert prop.get("description"), f"{where}/{key}"


def test_no_schema_is_left_over() -> None:
    names = {path.name for path in goldens.SCHEMAS.glob("*.schema.json")}
    assert names == {f"{goldens.snake(kind)}.v1.schema.json" for kind in KINDS}


def walk(value: Any, where: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every map in a document, with the way to it."""
    if isinstance(value, dict):
        yield where, value
        for key, item in value.items():
            yield from walk(item, f"{where}/{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from walk(item, f"{where}/{i}")


@pytest.fixture(scope="module")
def asyncapi() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((goldens.SCHEMAS / "asyncapi.yaml").read_text())
    return found


def resolve(document: Any, ref: str) -> Any:
    assert ref.startswith("#/"), ref
    for key in ref[2:].split("/"):
        document = document[key.replace("~1", "/").replace("~0", "~")]
    return document


def test_asyncapi_has_its_parts(asyncapi: dict[str, Any]) -> None:
    assert asyncapi.keys() <= {
        *("asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components")
    }
    assert asyncapi["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= asyncapi["info"].keys()
    assert asyncapi["defaultContentType"] == "application/msgpack"


def test_asyncapi_refers_only_to_what_is_there(asyncapi: dict[str, Any]) -> None:
    refs = [(where, found["$ref"]) for where, found in walk(asyncapi) if isinstance(found.get("$ref"), str)]
    assert refs
    for where, ref in refs:
        assert isinstance(resolve(asyncapi, ref), dict), f"{where} -> {ref}"


def test_asyncapi_channels_name_their_parameters_and_messages(asyncapi: dict[str, Any]) -> None:
    assert asyncapi["channels"].keys() == {goldens.snake(kind) for kind in KINDS}
    for name, channel in asyncapi["channels"].items():
        assert channel.keys() <= {"address", "title", "summary", "description", "parameters", "messages"}
        assert set(re.findall(r"\{(\w+)\}", channel["address"])) == channel["parameters"].keys(), name
        for found in channel["parameters"].values():
            assert found.keys() <= {"enum", "default", "description", "examples", "location"}
        for found in channel["messages"].values():
            assert found.keys() == {"$ref"}


def test_asyncapi_operations_send_on_channels(asyncapi: dict[str, Any]) -> None:
    for name, operation in asyncapi["operations"].items():
        assert re.fullmatch(r"[A-Za-z0-9_-]+", name)
        assert operation["action"] in ("send", "receive")
        assert resolve(asyncapi, operation["channel"]["$ref"])["address"]


def test_asyncapi_messages_carry_their_schemas(asyncapi: dict[str, Any]) -> None:
    messages = asyncapi["components"]["messages"]
    assert sorted(messages) == KINDS
    for kind, message in messages.items():
        assert message.keys() <= {"name", "title", "summary", "description", "contentType", "headers", "payload"}
        assert message["headers"]["properties"]["Heeler-Type"]["const"] == f"{kind}/1"
        Draft202012Validator.check_schema(message["headers"])
        payload = message["payload"]
        assert payload["schemaFormat"] == "application/schema+json;version=draft-2020-12"
        Draft202012Validator.check_schema(payload["schema"])
        assert payload["schema"]["properties"].keys() == goldens.schema(kind)["properties"].keys()
        inside = f"#/components/messages/{kind}/"
        assert all(f["$ref"].startswith(inside) for _, f in walk(payload) if isinstance(f.get("$ref"), str))
