import pytest

from redraft.cycles.likeness import alike, essence_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Readings drift at night.", "readings drift at night"),
        ("The reading drifts at night", "Readings often drift at night!"),
        ("Defect rate is above 80 %", "defect rate above 80%"),
        ("Alerts on Monday are likely false positives", "alerts on monday: false positive"),
        ("It doesn't help", "It doesn\u2019t help"),
        (
            "Vibration above 80 at line B7 precedes bearing failures by hours",
            "Strong vibration above 80 at line B7 precedes bearing failures by hours",
        ),
        ("漂移在夜间", "漂移在夜间"),
    ],
)
def test_the_same_in_other_words(one, other):
    assert alike(essence_of(one), essence_of(other))
    assert alike(essence_of(other), essence_of(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Alert when the rate is above 80", "Alert when the rate is above 90"),
        ("Alert when the rate is above 80", "Alert when the rate is below 80"),
        ("rate > 5 is bad", "rate < 5 is bad"),
        ("rate of -5 is bad", "rate of 5 is bad"),
        ("rate of 0.5 is bad", "rate of 0.05 is bad"),
        ("limit of 80 %", "limit of 80"),
        ("Retries help", "Retries do not help"),
        ("Retries help", "Retries don't help"),
        ("Station A7 fails", "Station A8 fails"),
        ("latency causes errors", "errors cause latency"),
        ("The red valve leaks", "The blue valve leaks"),
        ("Deliveries come late on Monday", "Deliveries come late on Tuesday"),
        (
            "Deliveries to the plant arrive late in every week of winter",
            "Deliveries to the plant never arrive late in every week of winter",
        ),
        (
            "Deliveries to the plant arrive late in every week of winter",
            "Deliveries of Acme to the plant arrive late in every week of winter",
        ),
        ("the", "a"),
        ("", ""),
    ],
)
def test_another_statement(one, other):
    assert not alike(essence_of(one), essence_of(other))
    assert not alike(essence_of(other), essence_of(one))


def test_a_long_description_takes_no_long_time():
    assert alike(essence_of("a1 " * 10_000), essence_of("a1 " * 10_000))
