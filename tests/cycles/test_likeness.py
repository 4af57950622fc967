import pytest

from redraft.cycles.likeness import alike, essence_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Readings drift at night.", "readings drift at night"),
        ("The reading drifts at night", "Readings often drift at night!"),
        ("Defect rate is above 80 %", "defect rate above 80%"),
        ("Alerts on Monday are likely false positives", "alerts on monday: false positive"),
        ("False-positive alerts in the night shift", "False positive alerts in the night-shift"),
        ("High temperatures lead to defects", "A high temperature leads to defects"),
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
        ("Station 7a fails", "Station 7 fails"),
        ("Supplier A ships late", "Supplier ships late"),
        ("The IT systems fail", "The systems fail"),
        ("An offset of -5ms is bad", "An offset of 5ms is bad"),
        ("Between 6:00 and 7:00 it is late", "Between 6:00 and 8:00 it is late"),
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
    for text in ("a1 " * 10_000, "1." * 20_000 + " ", "-" * 30_000 + "1", "1" + "," * 30_000):
        assert alike(essence_of(text), essence_of(f"{text} "))
