"""AWS Secrets Manager, asked as whoever the host is to AWS.

The item is a name or an ARN, whose region counts; the secret is a JSON object of which the field is
a key. The host's identity needs secretsmanager:GetSecretValue for the item, and nobody else does.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.exceptions import ConnectionError as NoConnectionError

from stado_agent.secrets import SecretRefused, SecretUnreachable, field_of

_LIMITS = Config(
    connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 1, "mode": "standard"}
)
"""Also of what is asked on the way to credentials. Who wants the secret tries again."""

_SERVER_ERROR = 500
_ABSENT = "ResourceNotFoundException"
_LATER = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException"})
_STALE = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})


class AwsSecrets:
    """New connections and credentials for each secret: they are asked for once a job."""

    def __init__(self, endpoint: str | None) -> None:
        self._endpoint = endpoint

    def read(self, item: str, field: str) -> str:
        try:
            client = self._client(_region_of(item))
            try:
                answer = client.get_secret_value(SecretId=item)
            finally:
                client.close()
        except ClientError as error:
            _raise_for(error)
        except NoRegionError:
            raise SecretRefused(
                "no region is stated: export AWS_DEFAULT_REGION for the agent, or name the "
                "secret by its ARN"
            ) from None
        except NoCredentialsError:
            raise SecretRefused("the host has no AWS credentials: give it a role") from None
        except (NoConnectionError, HTTPClientError, CredentialRetrievalError) as error:
            raise SecretUnreachable(
                f"AWS Secrets Manager does not answer ({type(error).__name__})"
            ) from None
        except BotoCoreError as error:
            raise SecretRefused(f"AWS cannot be asked ({type(error).__name__})") from None
        return _field_of(answer, field)

    def _client(self, region: str | None) -> Any:
        core = botocore.session.get_session()
        core.set_default_client_config(_LIMITS)
        resolver = core.get_component("credential_provider")
        # There is no other way to tell it that nobody is there to be asked.
        resolver.get_provider("assume-role")._prompter = _refuse_to_ask  # noqa: SLF001
        session = boto3.session.Session(botocore_session=core, region_name=region)
        return session.client("secretsmanager", endpoint_url=self._endpoint)


def _refuse_to_ask(_prompt: str) -> NoReturn:
    raise SecretRefused("the host's AWS profile asks for a code (MFA), which no agent can give")


def _region_of(item: str) -> str | None:
    """arn:aws:secretsmanager:<region>:<account>:secret:<name>"""
    parts = item.split(":")
    return parts[3] or None if parts[0] == "arn" and len(parts) > 3 else None


def _raise_for(error: ClientError) -> NoReturn:
    """By the code: messages name accounts and users, and the text is stored."""
    code = str(error.response.get("Error", {}).get("Code", "unknown"))[:80]
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == _ABSENT:
        raise SecretRefused("AWS Secrets Manager has no such secret") from None
    if status >= _SERVER_ERROR or code in _LATER or code in _STALE:
        raise SecretUnreachable(f"AWS Secrets Manager says {code}") from None
    raise SecretRefused(
        f"AWS Secrets Manager says {code}: the host's identity needs "
        "secretsmanager:GetSecretValue for it"
    ) from None


def _field_of(answer: Any, field: str) -> str:
    text = answer.get("SecretString")
    try:
        document = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        document = None
    return field_of(document, field)
