"""How often a worker connects again to a broker that does not let it work."""

from gitops_workers.pace import Pace


def test_a_few_restarts_are_let_through_and_more_of_them_wait() -> None:
    now, slept = [0.0], list[float]()
    step = Pace(None, clock=lambda: now[0], sleep=slept.append)
    for _ in range(3):
        step.stop(None)
    assert slept == []
    step.stop(None)
    step.stop(None)
    assert slept == [1.0, 1.0]


def test_restarts_that_lie_apart_never_wait() -> None:
    now, slept = [0.0], list[float]()
    step = Pace(None, clock=lambda: now[0], sleep=slept.append)
    for _ in range(10):
        step.stop(None)
        now[0] += 5.0
    assert slept == []
