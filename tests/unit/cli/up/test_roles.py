"""Which processes `gitops up` keeps, how they begin and in which order they end."""

import sys
from pathlib import Path

from gitops_reconciler.cli.up.roles import Role, fleet_roles, server_role
from gitops_reconciler.layout import Layout
from gitops_reconciler.settings import Settings


def roles(*, workers: int = 1, has_flower: bool = True, **fields: object) -> dict[str, Role]:
    settings = Settings.model_validate(fields)
    server = server_role(["/usr/bin/redis-server"], Layout(Path("/state")))
    fleet = fleet_roles(
        settings, workers=workers, has_flower=has_flower, waits_for=Path("/state/s.sock"), environment={"A": "b"}
    )
    return {role.name: role for role in [server, *fleet]}


def test_they_end_in_order_the_receiver_first_and_the_server_last() -> None:
    found = roles(workers=2)
    ordered = sorted(found.values(), key=lambda role: -role.rank)
    assert [role.name for role in ordered] == ["receiver", "beat", "worker-1", "worker-2", "flower", "server"]
    assert found["worker-1"].rank == found["worker-2"].rank


def test_runs_have_one_grace_to_end_by_themselves_and_another_when_interrupted() -> None:
    assert roles(lease_grace="20s")["worker-1"].stop_seconds > 40


def test_flower_may_be_left_out() -> None:
    assert "flower" not in roles(has_flower=False)


def test_each_is_a_child_that_dies_with_us_and_waits_for_the_server() -> None:
    command = roles()["beat"].tethered()
    assert command[0] == sys.executable
    assert Path(command[3]).name == "tether.py"
    assert command[command.index("--socket") + 1] == "/state/s.sock"
    assert command[command.index("--") + 1 :] == [sys.executable, "-m", "gitops_workers", "beat"]


def test_two_servers_never_share_their_data() -> None:
    command = roles()["server"].tethered()
    assert command[command.index("--lock") + 1] == "/state/redis/server.lock"
    assert "--socket" not in command
