from kept import ran
from redraft import ReflectionCallbacks
from redraft.loop.timeline import timeline


def seen(run):
    return [(one.step.name, one.version) for one in timeline(run)]


def test_each_step_belongs_to_the_version_that_it_worked_on():
    run = ran(("a", 0.1), ("b", 0.5), callbacks=ReflectionCallbacks(), max_iterations=1)
    assert seen(run) == [
        ("generate", 1), ("on_generation", 1), ("evaluate", 1), ("on_reflection", 1),
        ("revise", 2), ("on_generation", 2), ("on_revision", 2), ("evaluate", 2), ("on_reflection", 2),
    ]  # fmt: skip


def test_a_step_that_failed_was_for_the_version_that_never_came():
    assert seen(ran(("a", 0.1), OSError("away")))[-1] == ("revise", 2)


def test_steps_add_up():
    stretches = timeline(ran(("a", 0.1), ("b", 0.5), max_iterations=1))
    assert all(one.seconds >= 0 and one.began >= 0 for one in stretches)
    assert [one.began for one in stretches] == sorted(one.began for one in stretches)
