"""The types of the fields of documents: each refuses what it does not understand, and says what it takes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.refs import BRANCHES, TAGS, check_branch, check_tag, is_sha
from gitops_reconciler.git.urls import check_url
from gitops_reconciler.manifests.problems import shown
from gitops_reconciler.models import NAME_PATTERN
from gitops_reconciler.secrets import ENV_PREFIX, is_reference
from gitops_reconciler.settings import parse_duration

OFF = timedelta()
"""The interval of a target that only pushes and people tick."""

_LONGEST = timedelta(days=366)
_SHORTEST = timedelta(seconds=1)
_NAME = re.compile(NAME_PATTERN)
_SWITCH = {"yes": True, "on": True, "no": False, "off": False}
_MAX_TEXT = 4096
_MAX_LABEL = 256
_MAX_PATTERN = 512
_LABEL_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OUTPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
_PERCENTAGE = re.compile(r"(?:[1-9][0-9]?|100)%")


def _name(text: Any) -> str:
    if isinstance(text, str) and _NAME.fullmatch(text):
        return text
    message = (
        f"{shown(text)} is no name (allowed: at most 128 lower-case letters, digits, '.', '_' and '-', "
        "beginning and ending with a letter or digit)"
    )
    raise ValueError(message)


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _SWITCH:
        return _SWITCH[value.lower()]
    message = f"must be true or false, not {shown(value)}"
    raise ValueError(message)


def _duration(value: Any) -> timedelta:
    try:
        duration = parse_duration(value)
    except OverflowError:
        duration = _LONGEST * 2
    except ValueError:
        message = f"{shown(value)} is no duration (allowed: a number with s, m, h or d, as in 60s, 10m, 1h)"
        raise ValueError(message) from None
    if not _SHORTEST <= duration <= _LONGEST:
        message = f"{shown(value)} is out of range (allowed: 1s to 366d)"
        raise ValueError(message)
    return duration


def _interval(value: Any) -> timedelta:
    if value == "off":
        return OFF
    try:
        return _duration(value)
    except ValueError as error:
        message = str(error).replace("(allowed:", "(allowed: off;")
        raise ValueError(message) from None


def one_line(value: str) -> str:
    """Return a text that is one printable line, and that no tool takes for an option."""
    if not value or len(value) > _MAX_TEXT or not value.isprintable() or value.startswith("-"):
        message = f"must be printable text of one line that does not begin with '-', not {shown(value)}"
        raise ValueError(message)
    return value


def relative_path(value: str) -> str:
    """Return a relative path in its shortest form."""
    one_line(value)
    parts = value.split("/")
    if value.startswith(("/", "~")) or "\\" in value:
        message = f"{shown(value)} must be a relative path"
        raise ValueError(message)
    if any(part.lower() == ".git" for part in parts):
        message = f"{shown(value)} leads into git's own folder"
        raise ValueError(message)
    return posixpath.normpath(value)


def leads_out(path: str) -> bool:
    """Whether a relative path climbs out of the folder that it begins in."""
    return posixpath.normpath(path).split("/", 1)[0] == ".."


def _repository_path(value: str) -> str:
    path = relative_path(value)
    if leads_out(path):
        message = f"{shown(value)} leaves the repository"
        raise ValueError(message)
    return path


def _branch(value: str) -> str:
    return _checked(check_branch, value).removeprefix(BRANCHES)


def _tag(value: str) -> str:
    return _checked(check_tag, value).removeprefix(TAGS)


def _commit(value: str) -> str:
    if not is_sha(value):
        message = f"{shown(value)} is no full commit (40 or 64 lower-case hex digits)"
        raise ValueError(message)
    return value


def _repository(value: str) -> str:
    """Check an address as git's own module does; whether this host may use http or a local folder is asked there."""
    return _checked(lambda url: check_url(url, Path("/"), allow_http=True).address, value)


def _checked(check: Callable[[str], str], value: str) -> str:
    try:
        return check(value)
    except SpecError as error:
        raise ValueError(str(error)) from None


def _label_key(value: str) -> str:
    if not _LABEL_KEY.fullmatch(value):
        message = f"{shown(value)} is no key of a label (letters, digits, '.', '_', '/' and '-', at most 128)"
        raise ValueError(message)
    return value


def _label_value(value: str) -> str:
    if len(value) > _MAX_LABEL or (value and not value.isprintable()):
        message = f"must be printable text of at most {_MAX_LABEL} characters, not {shown(value)}"
        raise ValueError(message)
    return value


def _variable_name(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        message = f"{shown(value)} is no name of a variable"
        raise ValueError(message)
    return value


def _environment_name(value: str) -> str:
    _variable_name(value)
    if value.startswith("GITOPS_"):
        message = f"{shown(value)}: variables that begin with GITOPS_ are our own settings"
        raise ValueError(message)
    return value


def _dependency(value: Any) -> str:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) in {1, 2} and all(_NAME.fullmatch(part) for part in parts):
        return str(value)
    message = f"{shown(value)} names no target (a name, as in dns, or source/name for one of another source)"
    raise ValueError(message)


def _input(value: Any) -> str:
    target, dot, output = value.rpartition(".") if isinstance(value, str) else ("", "", "")
    if not dot or not _OUTPUT.fullmatch(output):
        message = f"{shown(value)} names no output (as in dns.zone_id, or source/dns.zone_id)"
        raise ValueError(message)
    return f"{_dependency(target)}.{output}"


def _ceiling(value: Any) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _PERCENTAGE.fullmatch(value):
        return value
    message = f'must be a number of targets (5) or a percentage ("20%", 1% to 100%), not {shown(value)}'
    raise ValueError(message)


def _secret_reference(value: str) -> str:
    if not is_reference(value):
        # Never shown: it may be the secret itself.
        message = f"must be a secret reference (file:NAME or env:{ENV_PREFIX}NAME): the value itself never stands here"
        raise ValueError(message)
    return value


def file_pattern(value: Any) -> str:
    """Return a pattern of files from the root of the repository, in its shortest form."""
    if not isinstance(value, str):
        message = f"must be a pattern of files (as in hosts/*/compose.yaml), not {shown(value)}"
        raise ValueError(message)  # noqa: TRY004  # what pydantic takes from a validator
    if len(value) > _MAX_PATTERN:
        message = f"must be at most {_MAX_PATTERN} characters, not {len(value)}"
        raise ValueError(message)
    return _repository_path(value)


def _scalar_text(value: Any) -> Any:
    """Take numbers where the tool takes text: `{AWS_MAX_ATTEMPTS: 3}`."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _setting_text(value: Any) -> Any:
    """As `_scalar_text`, and `true` as Terraform writes it."""
    return str(value).lower() if isinstance(value, bool) else _scalar_text(value)


_DURATION_SCHEMA = {"type": ["string", "number"], "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(s|m|h|d)?\s*$"}

DocumentName = Annotated[
    str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN, "maxLength": 128})
]
Switch = Annotated[bool, BeforeValidator(_switch), WithJsonSchema({"type": "boolean"})]
Span = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema(_DURATION_SCHEMA)]
Interval = Annotated[
    timedelta, BeforeValidator(_interval), WithJsonSchema({"anyOf": [_DURATION_SCHEMA, {"const": "off"}]})
]
Text = Annotated[str, AfterValidator(one_line)]
RepositoryPath = Annotated[str, AfterValidator(_repository_path)]
"""From the root of the repository."""
RelativePath = Annotated[str, AfterValidator(relative_path)]
"""From the `path` of the document; whether it leaves the repository is seen when both are known."""
Branch = Annotated[str, AfterValidator(_branch)]
Tag = Annotated[str, AfterValidator(_tag)]
Commit = Annotated[str, AfterValidator(_commit)]
RepositoryUrl = Annotated[str, AfterValidator(_repository)]
Labels = dict[Annotated[str, AfterValidator(_label_key)], Annotated[str, AfterValidator(_label_value)]]
_TARGET_SCHEMA = rf"({NAME_PATTERN[1:-1]}/)?{NAME_PATTERN[1:-1]}"
Dependency = Annotated[
    str, BeforeValidator(_dependency), WithJsonSchema({"type": "string", "pattern": f"^{_TARGET_SCHEMA}$"})
]
Input = Annotated[
    str,
    BeforeValidator(_input),
    WithJsonSchema({"type": "string", "pattern": rf"^{_TARGET_SCHEMA}\.{_OUTPUT.pattern}$"}),
]
Ceiling = Annotated[
    int | str,
    BeforeValidator(_ceiling),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_PERCENTAGE.pattern}$"}]}
    ),
]
FilePattern = Annotated[str, BeforeValidator(file_pattern), WithJsonSchema({"type": "string", "minLength": 1})]
SecretReference = Annotated[str, AfterValidator(_secret_reference)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
SettingText = Annotated[str, BeforeValidator(_setting_text)]
Environment = dict[Annotated[str, AfterValidator(_environment_name)], Annotated[str, BeforeValidator(_scalar_text)]]
