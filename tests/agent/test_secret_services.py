"""Secrets of AWS, by its stand-in moto, and of Google, by a server of ours that speaks the call."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from stado_agent.secret_aws import AwsSecrets
from stado_agent.secret_gcp import GcpSecrets
from stado_agent.secrets import SecretRefused, SecretUnreachable
from tests.storage.canned_server import Answer, CannedServer, Request, canned_server

# --- AWS ------------------------------------------------------------------------------------


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[AwsSecrets]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        yield AwsSecrets(None)


def create(name: str, text: str, region: str = "eu-central-1") -> str:
    client = boto3.client("secretsmanager", region_name=region)
    arn: str = client.create_secret(Name=name, SecretString=text)["ARN"]
    return arn


def test_a_field_of_a_secret_of_aws_is_read_by_name_and_by_arn(aws: AwsSecrets) -> None:
    """R140"""
    create("team/db", '{"user": "ada", "password": "long enough"}')
    assert aws.read("team/db", "password") == "long enough"
    elsewhere = create("other", '{"password": "of another region"}', "us-west-2")
    assert aws.read(elsewhere, "password") == "of another region"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plain-secret-text", 'no JSON object: store it as {"password"'),
        ('["plain-secret-text"]', "no JSON object"),
        ('{"user": "plain-secret-text"}', "no such field"),
        ('{"password": {"plain-secret-text": 1}}', "no text"),
    ],
)
def test_a_secret_without_the_field_is_refused_without_its_value(
    aws: AwsSecrets, text: str, told: str
) -> None:
    create("db", text)
    with pytest.raises(SecretRefused, match=told) as caught:
        aws.read("db", "password")
    assert "plain-secret-text" not in str(caught.value)


def test_a_secret_that_aws_does_not_have_is_refused(aws: AwsSecrets) -> None:
    with pytest.raises(SecretRefused, match="has no such secret"):
        aws.read("nowhere", "password")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "AccessDeniedException", SecretRefused),
        (400, "ThrottlingException", SecretUnreachable),
        (400, "ExpiredTokenException", SecretUnreachable),
        (500, "InternalServiceError", SecretUnreachable),
    ],
)
def test_what_aws_says_is_told_by_its_code(
    monkeypatch: pytest.MonkeyPatch, status: int, code: str, kind: type[Exception]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    body = json.dumps({"__type": code, "message": "user arn:aws:iam::1:user/x"}).encode()
    with canned_server() as server:
        server.answers(Answer(status, body, {"Content-Type": "application/x-amz-json-1.1"}))
        with pytest.raises(kind, match=code) as caught:
            AwsSecrets(server.endpoint).read("db", "password")
        assert len(server.requests) == 1
    assert "user/x" not in str(caught.value)


def test_an_aws_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with pytest.raises(SecretUnreachable, match="does not answer"):
        AwsSecrets("http://127.0.0.1:9").read("db", "password")


def test_a_profile_that_asks_for_a_code_is_refused_and_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile lab]\nregion = eu-central-1\nrole_arn = arn:aws:iam::1:role/x\n"
        "source_profile = base\nmfa_serial = arn:aws:iam::1:mfa/x\n"
        "[profile base]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    with pytest.raises(SecretRefused, match="asks for a code"):
        AwsSecrets("http://127.0.0.1:9").read("db", "password")


# --- Google ---------------------------------------------------------------------------------


class Manager:
    """Speaks `versions.access`, to whoever has a token of its own."""

    def __init__(self, server: CannedServer, folder: Path) -> None:
        self.server = server
        self.payloads: dict[str, bytes] = {}
        self.status = 200
        server.answers_by(self._answer)
        (folder / "subject").write_text("ann")
        (folder / "credentials.json").write_text(
            json.dumps(
                {
                    "type": "external_account",
                    "audience": "//iam.googleapis.com/projects/1/locations/global/x",
                    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                    "token_url": f"{server.endpoint}/token",
                    "credential_source": {"file": str(folder / "subject")},
                }
            )
        )

    def _answer(self, request: Request) -> Answer:
        if request.path == "/token":
            token = {
                "access_token": "ours",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "token_type": "Bearer",
                "expires_in": 3600,
            }
            return _json(200, token)
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("authorization") != "Bearer ours":
            return _json(401, {})
        if self.status != 200 or request.path not in self.payloads:
            return _json(self.status if self.status != 200 else 404, {})
        data = base64.b64encode(self.payloads[request.path]).decode()
        return _json(200, {"name": "x", "payload": {"data": data, "dataCrc32c": "1"}})


def _json(status: int, content: object) -> Answer:
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "credentials.json"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "lab")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with canned_server() as server:
        yield Manager(server, tmp_path)


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ("db", "/v1/projects/lab/secrets/db/versions/latest:access"),
        ("db/versions/3", "/v1/projects/lab/secrets/db/versions/3:access"),
        ("projects/other-1/secrets/db", "/v1/projects/other-1/secrets/db/versions/latest:access"),
    ],
)
def test_a_field_of_a_secret_of_google_is_read(google: Manager, item: str, path: str) -> None:
    """R140"""
    google.payloads[path] = b'{"password": "long enough"}'
    assert GcpSecrets(google.server.endpoint).read(item, "password") == "long enough"


@pytest.mark.parametrize(
    ("status", "kind", "told"),
    [
        (200, SecretRefused, "has no such secret"),
        (403, SecretRefused, "secretmanager.versions.access"),
        (429, SecretUnreachable, "429"),
        (503, SecretUnreachable, "503"),
    ],
)
def test_what_google_says_is_told(
    google: Manager, status: int, kind: type[Exception], told: str
) -> None:
    google.status = status
    with pytest.raises(kind, match=told):
        GcpSecrets(google.server.endpoint).read("db", "password")


def test_a_payload_that_is_no_json_is_refused_without_its_value(google: Manager) -> None:
    google.payloads["/v1/projects/lab/secrets/db/versions/latest:access"] = b"plain-secret-text"
    with pytest.raises(SecretRefused, match="no JSON object") as caught:
        GcpSecrets(google.server.endpoint).read("db", "password")
    assert "plain-secret-text" not in str(caught.value)


@pytest.mark.parametrize(
    "item", ["a/b", "projects/x/secrets/../y", "db/versions/1/2", "a?b", "db:x"]
)
def test_a_name_that_google_cannot_have_is_refused(google: Manager, item: str) -> None:
    with pytest.raises(SecretRefused, match="no name of a Google secret"):
        GcpSecrets(google.server.endpoint).read(item, "password")
    assert google.server.requests == []


def test_a_google_that_does_not_answer_is_unreachable(google: Manager) -> None:
    with pytest.raises(SecretUnreachable, match="does not answer"):
        GcpSecrets("http://127.0.0.1:9").read("db", "password")
