"""git's words, as git 2.39 and the forges say them, and the class of failure that each means."""

import pytest

from gitops_reconciler.errors import (
    DiskFullError,
    GitError,
    RefMissingError,
    RepositoryAuthError,
    RepositoryCorruptError,
    RepositoryNotFoundError,
    RepositoryUnreachableError,
    SpecError,
)
from gitops_reconciler.git.failures import failure, said_by
from gitops_reconciler.processes import Finished
from gitops_reconciler.redaction import Redactor

WORDS: dict[type[Exception], tuple[str, ...]] = {
    RepositoryAuthError: (
        "fatal: Authentication failed for 'https://h.example/r/'",
        "fatal: could not read Username for 'https://h.example': terminal prompts disabled",
        "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://h.example/r'",
        "fatal: unable to access 'https://h.example/r/': The requested URL returned error: 403",
        "git@h.example: Permission denied (publickey).\nfatal: Could not read from remote repository.",
        "No ED25519 host key is known for h and you have requested strict checking.\nHost key verification failed.",
    ),
    RepositoryNotFoundError: (
        "remote: Repository not found.\nfatal: repository 'https://github.com/a/b/' not found",
        "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
        "fatal: '/srv/x' does not appear to be a git repository",
        "fatal: unable to access 'https://h.example/r/': The requested URL returned error: 302",
    ),
    RepositoryUnreachableError: (
        "fatal: unable to access 'https://h.example/r/': Could not resolve host: h.example",
        "fatal: unable to access 'https://h/r/': Failed to connect to h port 443: Connection refused",
        "error: RPC failed; curl 28 Operation too slow. Less than 1000 bytes/sec",
        "fatal: unable to access 'https://h/r/': The requested URL returned error: 503",
        "fatal: unable to access 'https://h/r/': SSL certificate problem: self-signed certificate",
        "ssh: connect to host h port 22: Connection timed out",
    ),
    RefMissingError: (
        "fatal: couldn't find remote ref refs/heads/gone",
        "fatal: remote error: upload-pack: not our ref 1234\nfatal: the remote end hung up unexpectedly",
    ),
    RepositoryCorruptError: (
        "fatal: loose object 12 (stored in objects/12/34) is corrupt",
        "error: object file objects/12/34 is empty\nfatal: the remote end did nothing",
        "fatal: bad object refs/remotes/origin/main\nerror: u did not send all necessary objects",
        "fatal: not a git repository: '/state/git/mirror/x.git'",
        "error: bad signature 0x00000000\nfatal: index file corrupt",
    ),
    DiskFullError: ("fatal: write error: No space left on device",),
    SpecError: ("error: object 12: gitmodulesUrl: disallowed submodule url: -u\nfatal: fsck error in packed object",),
    GitError: (
        "error: unable to unlink old 'a/f': Permission denied",
        "fatal: detected dubious ownership in repository at '/srv/r'",
        "fatal: something never seen before",
    ),
}


def ended(stderr: str) -> Finished:
    return Finished(argv=("git",), returncode=128, stdout="", stderr=stderr)


@pytest.mark.parametrize(("error", "stderr"), [(error, text) for error, texts in WORDS.items() for text in texts])
def test_each_failure_has_its_class(error: type[Exception], stderr: str) -> None:
    made = failure(ended(stderr), doing="fetch of 'https://h.example/r'", redactor=Redactor())
    assert type(made) is error
    assert str(made).startswith("fetch of 'https://h.example/r'")


def test_damage_that_the_server_relays_is_not_ours() -> None:
    relayed = ended("remote: fatal: loose object 12 is corrupt\nfatal: the remote end hung up unexpectedly")
    assert type(failure(relayed, doing="fetch", redactor=Redactor())) is RepositoryUnreachableError


@pytest.mark.req("R4.6")
def test_no_secret_and_no_terminal_sequence_gets_into_a_message() -> None:
    redactor = Redactor(["t0ken-value"])
    stderr = (
        "remote: \x1b[31mred\x1b[0m\x1b]0;title\x07 and\rgone\x9b2J\n"
        "fatal: could not read Password for 'http://t0ken-value@h.example': t0ken-value\n"
        "fatal: unable to access 'https://jane:other@h.example/r'\n"
    )
    said = said_by(ended(stderr), redactor)
    assert said.isprintable()
    assert "t0ken" not in said
    assert "other" not in said
    assert "red" in said
    assert "[31m" not in said


def test_long_output_is_cut_to_its_end() -> None:
    said = said_by(ended("noise\n" * 1000 + "fatal: the reason"), Redactor())
    assert len(said) <= 400
    assert said.endswith("fatal: the reason")


def test_silence_is_told_by_the_exit_code() -> None:
    assert "128" in said_by(ended(""), Redactor())
