"""A server that evaluates IAM policies itself: users with a policy each, on one bucket."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

import boto3.session

from tests.security.policies import BUCKET, s3_document
from tests.servers import Server
from tests.servers.catalogue import ACCESS_KEY, REGION, SECRET_KEY


def make_user(server: Server, role: str, bucket: str) -> dict[str, str]:
    """A user who has the role's policy; what its programs need in their environment."""
    iam = _client(server)
    iam.create_user(UserName=role)
    document = json.dumps(s3_document(role)).replace(BUCKET, bucket)
    iam.put_user_policy(UserName=role, PolicyName="stado", PolicyDocument=document)
    made: Mapping[str, Any] = iam.create_access_key(UserName=role)["AccessKey"]
    return {
        **server.environment,
        "AWS_ACCESS_KEY_ID": made["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": made["SecretAccessKey"],
    }


def enforce(server: Server) -> None:
    """From now on every request needs a user who may make it."""
    url = f"{server.endpoint}/moto-api/reset-auth"
    request = urllib.request.Request(url, data=b"0", headers={"Content-Type": "text/plain"})
    urllib.request.urlopen(request, timeout=10).close()


def _client(server: Server) -> Any:
    return boto3.session.Session().client(
        "iam",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
