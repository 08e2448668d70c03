"""The fleet without Celery under kills, frozen processes and a store that does not answer: real tools, real Redis."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from gitops_reconciler import keys
from gitops_reconciler.clock import boottime
from gitops_reconciler.errors import StoreUnavailableError
from gitops_reconciler.local import find_folder, tick_here
from gitops_reconciler.outcomes import RunState
from gitops_reconciler.redis_text import as_text
from gitops_reconciler.runs.launching import order_of
from gitops_reconciler.settings import Settings, load_settings
from gitops_reconciler.store.redis import RunView
from gitops_reconciler.supervise.procfs import Identity, send
from gitops_reconciler.wiring import FleetParts
from gitops_reconciler.work.base import Claim, Renewal
from tests.support.fleet_scenes import SOURCE, Scene, fleet_scene
from tests.support.fleet_worker import MODULE, Chain
from tests.support.git_repos import MakeUpstream
from tests.support.processes import eventually, lives
from tests.support.redis_server import RedisServer, running_redis
from tests.support.roles import RoleProcess, Roles
from tests.support.supervise_runs import is_held, living

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are supervised on Linux only")

WEB = "default/web"
WITHIN = 40.0
TTL, GRACE = 7.0, 2.0
FROZEN_SECONDS = 5.0  # a supervisor that is silent for so long counts as frozen

# The first apply hangs and notes when it is told to end; one that begins while it lives says so.
HANGING = """\
type: manifest
kind: hanging
schema: {type: object, required: [folder], properties: {folder: {type: string}}}
scripts:
  apply: |
    cd "$SPEC_FOLDER"
    read -r last < pid 2>/dev/null
    if [ -n "$last" ] && readlink "/proc/$last/exe"; then echo "two at once"; exit 1; fi
    [ -e go ] && exit 3
    trap 'read -r up _ < /proc/uptime; echo "$up" >> told' INT
    echo $$ > draft; mv draft pid
    sleep 600 & sleeping=$!
    while ! [ -e go ] && ! [ -e told ]; do sleep 0.05; done
    [ -e go ] && { kill "$sleeping"; exit 3; }
    wait "$sleeping"; wait "$sleeping"
  destroy: "true"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server of its own: it is frozen now and then."""
    with running_redis() as started:
        yield started


@pytest.fixture
def short_leases(server: RedisServer, state_dir: Path, git_root: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an empty store, in the environment too."""
    environ = {
        "REDIS_URL": server.url, "GIT_ALLOW_LOCAL": str(git_root),
        "LEASE_TTL": f"{TTL:g}s", "LEASE_GRACE": f"{GRACE:g}s", "LEASE_RENEWAL": "500ms",
    }  # fmt: skip
    for name, value in environ.items():
        monkeypatch.setenv(f"GITOPS_{name}", value)
    with Redis.from_url(server.url) as client:
        client.flushall()
    return load_settings()


@pytest.fixture
def scene(short_leases: Settings, git_upstream: MakeUpstream, tmp_path: Path) -> Iterator[Scene]:
    """A source with a target `web` that hangs when it is run."""
    notes = tmp_path / "notes"
    with fleet_scene(short_leases, git_upstream("infra"), notes) as made:
        made.push({"gitops/kind.yaml": HANGING, "gitops/web.yaml": hanging("web", notes)})
        made.run(SOURCE)
        yield made


def hanging(name: str, folder: Path) -> str:
    return f"type: resource\nkind: hanging\nname: {name}\ninterval: 1h\nspec: {{folder: {folder}}}\n"


@dataclass
class Others:
    """Other workers: started in processes of their own, with all that they start ended afterwards."""

    roles: Roles
    known: set[Identity] = field(default_factory=set)

    def run(self, scene: Scene, *items: str, state_dir: Path | None = None) -> RoleProcess:
        """Start one that runs these items; on this host, unless it has a state folder of its own."""
        for item in items:
            scene.ask(item)
        return self.roles.start(MODULE, *items, environ={"GITOPS_STATE_DIR": str(state_dir)} if state_dir else {})

    def chain(self, record: Path, worker: RoleProcess, started: Sequence[Path]) -> Chain:
        """Who works at a run, once its tools have said that they do."""
        assert eventually(lambda: all(file.exists() for file in started), within=WITHIN), worker.text()
        chain = Chain.of(record)
        self.known |= {Identity.of(worker.pid), *chain.keepers, *chain.work}
        return chain

    def clean_up(self) -> None:
        for role in self.roles.started:
            role.process.kill()
        for who in self.known:
            send(who, signal.SIGKILL)
        self.roles.end_all()


@pytest.fixture
def others(scene: Scene, tmp_path: Path) -> Iterator[Others]:
    folder = tmp_path / "others"
    folder.mkdir()
    made = Others(Roles(folder, {name: value for name, value in os.environ.items() if name.startswith("GITOPS_")}))
    yield made
    made.clean_up()


def kill(who: Iterable[Identity], number: signal.Signals = signal.SIGKILL) -> None:
    for one in who:
        send(one, number)


def are_gone(who: Iterable[Identity]) -> bool:
    return eventually(lambda: not living(set(who)), within=WITHIN)


def leftover(scene: Scene, name: str, kind: str) -> Path:
    return scene.settings.layout.leftover(kind, f"default/{name}")


MAIN_TF = """\
resource "terraform_data" "quick" { input = "quick" }
resource "terraform_data" "slow" {
  depends_on = [terraform_data.quick]
  provisioner "local-exec" { command = "touch FOLDER/tf; sleep 600" }
}
"""
PLAYBOOK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"shell": "touch FOLDER/{{ inventory_hostname }}; sleep 600 & wait"}],
    }
]
TOOLS = {
    "gitops/net.yaml": "type: resource\nkind: terraform\nname: net\npath: stack\ninterval: 1h\n",
    "gitops/hosts.yaml": "type: resource\nkind: ansible\nname: hosts\npath: play\ninterval: 1h\n"
    "spec: {playbook: site.yml, inventory: hosts.ini}\n",
    "play/hosts.ini": "one ansible_connection=local\ntwo ansible_connection=local\n",
}


def test_killed_runs_of_terraform_and_ansible_leave_no_process_and_no_lock(
    scene: Scene, others: Others, terraform: Path, ansible_playbook: Path
) -> None:
    folder = str(scene.notes)
    code = {"stack/main.tf": MAIN_TF, "play/site.yml": json.dumps(PLAYBOOK)}
    scene.push({**TOOLS, **{name: text.replace("FOLDER", folder) for name, text in code.items()}})
    scene.ask(SOURCE)
    scene.run(SOURCE)
    worker = others.run(scene, "default/net", "default/hosts")
    started = [scene.notes / name for name in ("tf", "one", "two")]
    records = [leftover(scene, "net", "terraform"), leftover(scene, "hosts", "ansible")]
    net, hosts = (others.chain(record, worker, started) for record in records)
    work = net.work | hosts.work
    assert len(work) >= 10, "run processes, terraform, its shell and sleep; ansible, its forks, their shells and sleeps"

    kill({Identity.of(worker.pid), *net.keepers, net.process, hosts.supervisor})

    assert are_gone(work), worker.text()
    for record in records:
        assert eventually(partial(_is_away, record), within=WITHIN)
        assert not is_held(record.with_suffix(".lock"))
    state = json.loads((scene.settings.layout.home("default/net") / "default.tfstate").read_text())
    names = [one["name"] for one in state["resources"]]
    assert names == ["quick", "slow"], "terraform was interrupted once: a second time it loses what it was creating"


def _is_away(path: Path) -> bool:
    return not path.exists()


@pytest.mark.req("R0.12", "R0.21")
def test_a_local_tick_begins_only_when_all_of_a_killed_run_of_the_fleet_is_gone(scene: Scene, others: Others) -> None:
    worker = others.run(scene, WEB)
    chain = others.chain(leftover(scene, "web", "hanging"), worker, [scene.notes / "pid"])
    kill({Identity.of(worker.pid), *chain.keepers})
    assert are_gone(chain.keepers)
    assert living(set(chain.work))
    (scene.notes / "go").touch()

    log = io.StringIO()
    folder = find_folder(Path("gitops"), scene.upstream.work)
    outcome = tick_here("web", folder, scene.settings, log=log, say=lambda _text: None)

    assert not living(set(chain.work))
    assert outcome.state is RunState.CHANGED, outcome.message


@pytest.mark.req("R0.20")
def test_a_run_that_is_frozen_beyond_its_lease_is_refused_and_ends_while_another_host_goes_on(
    scene: Scene, others: Others, tmp_path: Path
) -> None:
    far = tmp_path / "far"
    worker = others.run(scene, WEB, state_dir=far)
    record = replace(scene.settings.layout, root=far).leftover("hanging", WEB)
    chain = others.chain(record, worker, [scene.notes / "pid"])
    everybody = [Identity.of(worker.pid), chain.zygote, chain.guard, chain.supervisor, *chain.work]
    kill(everybody, signal.SIGSTOP)
    assert eventually(lambda: not scene.fleet.client.exists(keys.lease(WEB)), within=WITHIN), "the lease is over"
    (scene.notes / "pid").unlink()  # of the other machine
    (scene.notes / "go").touch()

    run = scene.run(WEB)
    (scene.notes / "go").unlink()
    kill(reversed(everybody), signal.SIGCONT)

    assert are_gone(chain.work)
    assert worker.process.wait(WITHIN) == 0
    assert run.state == "changed"
    assert scene.view("web").status == "ready"
    assert scene.view("web").last_run == run.run


def test_a_run_that_is_frozen_for_good_is_ended_by_another_worker_of_its_host(scene: Scene, others: Others) -> None:
    worker = others.run(scene, WEB)
    chain = others.chain(leftover(scene, "web", "hanging"), worker, [scene.notes / "pid"])

    kill([Identity.of(worker.pid), chain.zygote, chain.guard, chain.supervisor, *chain.work], signal.SIGSTOP)

    assert are_gone({chain.guard, chain.supervisor, *chain.work})
    (scene.notes / "go").touch()
    assert eventually(lambda: not scene.fleet.client.exists(keys.lease(WEB)), within=WITHIN), "the lease is over"
    assert scene.run(WEB).state == "changed"


class Aside:
    """A run in a thread of this process, as in a worker."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.views: list[RunView] = []
        self._thread = threading.Thread(target=lambda: self.views.append(scene.run(WEB)))
        self._thread.start()
        assert eventually((scene.notes / "pid").exists, within=WITHIN)

    def end(self) -> RunView:
        self._thread.join(WITHIN)
        (view,) = self.views
        return view

    @property
    def holder(self) -> str | None:
        return as_text(self.scene.fleet.client).get(keys.lease(WEB))


def test_a_store_that_is_away_for_a_moment_and_forgets_its_scripts_confirms_the_same_token(
    scene: Scene, server: RedisServer
) -> None:
    run = Aside(scene)
    holder, client = run.holder, scene.fleet.client
    assert holder
    at = boottime()
    os.kill(server.pid, signal.SIGSTOP)
    assert eventually(lambda: boottime() > at + 1.5, within=WITHIN), "renewals were sent, and none was answered"
    os.kill(server.pid, signal.SIGCONT)
    client.script_flush()
    assert eventually(lambda: client.pttl(keys.lease(WEB)) > (TTL - 1) * 1000, within=WITHIN), "it was renewed"
    assert run.holder == holder
    client.script_flush()

    (scene.notes / "go").touch()

    assert run.end().state == "changed"
    assert not (scene.notes / "told").exists()
    assert scene.view("web").status == "ready"


def test_a_store_that_stays_away_ends_the_run_before_its_lease_and_hears_of_it_later(
    scene: Scene, server: RedisServer
) -> None:
    run = Aside(scene)
    at = boottime()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert eventually((scene.notes / "told").exists, within=WITHIN)
        tool = int((scene.notes / "pid").read_text())
        assert eventually(lambda: not lives(tool), within=WITHIN)
        told_at = float((scene.notes / "told").read_text())
        assert at + TTL - GRACE - 2 - 0.6 < told_at + 0.01 < at + TTL - GRACE, (
            "as soon as the lease does not cover more"
        )
    finally:
        os.kill(server.pid, signal.SIGCONT)

    view = run.end()

    assert (scene.notes / "told").read_text().count("\n") == 1
    assert view.state in {"aborted", "lost"}
    scene.fleet.work.sweep(limit=10, rewake_after_ms=0, ttl_ms=1000)
    (scene.notes / "go").touch()
    assert eventually(lambda: _goes_on(scene), within=WITHIN), "the target is asked again"


def _goes_on(scene: Scene) -> bool:
    scene.ask(WEB)
    run = scene.runner.run(WEB)
    return run is not None and scene.view("web").status == "ready"


def test_a_supervisor_looks_at_the_clock_again_soon_while_the_store_does_not_answer(
    scene: Scene, server: RedisServer
) -> None:
    claim = scene.fleet.work.claim(WEB, uuid4().hex, ttl_ms=60_000, holder="test")
    assert isinstance(claim, Claim)
    order = order_of(claim, scene.settings, scene.settings.layout)
    known, fresh = (FleetParts(scene.settings).lease(order) for _ in range(2))
    assert known.renew() is Renewal.HELD
    at = boottime()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for lease in (known, fresh):
            with pytest.raises(StoreUnavailableError):
                lease.renew()
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert boottime() - at < 2 * FROZEN_SECONDS, "or the guard takes its supervisor for frozen"
    assert known.renew() is Renewal.HELD


def test_a_lease_that_somebody_else_took_interrupts_at_once_and_is_left_to_him(scene: Scene) -> None:
    run = Aside(scene)
    client, work = scene.fleet.client, scene.fleet.work
    client.delete(keys.lease(WEB))
    scene.ask(WEB)
    other = work.claim(WEB, uuid4().hex, ttl_ms=60_000, holder="other")
    assert isinstance(other, Claim)

    view = run.end()

    assert (scene.notes / "told").exists()
    assert view.state == "lost"
    assert work.renew(WEB, other.token, other.run, ttl_ms=60_000) is not Renewal.LOST
