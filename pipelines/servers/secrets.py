"""Keeps secrets out of commands and configs, which are shown, logged and stored."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_ARGUMENT = re.compile(
    r"--?[\w-]*(?:api[-_]key|token|secret|password)(?:=.*)?", re.IGNORECASE
)


def refuse_secret_names(env: Mapping[str, str]) -> Mapping[str, str]:
    """`env`; ValueError for a variable whose name says that it holds a secret."""
    for name in env:
        if _NAME.search(name):
            raise ValueError(
                f"{name} looks like a secret, and a config is stored with its run; set it "
                "in the environment, which servers inherit, and name it in pass_env where "
                "the cluster's nodes do not have it"
            )
    return env


def refuse_secret_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """`arguments`; ValueError for one that gives a key, which process lists show."""
    for argument in arguments:
        if _ARGUMENT.fullmatch(argument):
            option = argument.partition("=")[0]
            raise ValueError(
                f"{option} would put a secret into a command, which is stored and shown; "
                "give it to the server as an environment variable"
            )
    return arguments
