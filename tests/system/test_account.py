"""Who acts."""

from __future__ import annotations

import os
import pwd

import pytest

from stado.errors import Refused
from stado.system.account import account_name

FREE_UID = 3_999_999_999


def test_user_comes_before_logname() -> None:
    assert account_name({"USER": "maja", "LOGNAME": "gustaw"}) == "maja"
    assert account_name({"LOGNAME": "gustaw"}) == "gustaw"
    assert account_name({"USER": "", "LOGNAME": "gustaw"}) == "gustaw"


def test_without_either_the_user_database_answers() -> None:
    assert account_name({}) == pwd.getpwuid(os.getuid()).pw_name
    assert account_name({}, uid=0) == pwd.getpwuid(0).pw_name


def test_a_name_is_read_as_utf_8() -> None:
    assert account_name({"USER": os.fsdecode("żółw".encode())}) == "żółw"


@pytest.mark.parametrize("variable", ["USER", "LOGNAME"])
def test_a_variable_that_is_not_text_is_refused_by_name(variable: str) -> None:
    with pytest.raises(Refused, match=f"^{variable} cannot be read: .*0xff") as refused:
        account_name({variable: "ma\udcffja"})
    assert refused.value.code == "account_unknown"


def test_a_uid_without_an_account_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        account_name({}, uid=FREE_UID)
    assert refused.value.code == "account_unknown"
    assert refused.value.text == (
        f"neither USER nor LOGNAME is set and the user database holds no account for uid {FREE_UID}"
    )
