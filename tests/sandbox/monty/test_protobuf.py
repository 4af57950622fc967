"""Protobuf by hand: what goes in comes out, and what is no message is said to be none."""

import pytest

from redraft.sandbox.monty.protobuf import all_in, data, data_in, fields, number, number_in, text_in


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**32, 2**64 - 1])
def test_a_number_comes_out_as_it_went_in(value):
    assert list(fields(number(3, value))) == [(3, value)]


@pytest.mark.parametrize("value", [b"", b"x", b"x" * 127, b"x" * 128, "é😀".encode(), bytes(70_000)])
def test_bytes_come_out_as_they_went_in(value):
    assert list(fields(data(20, value))) == [(20, value)]


def test_a_message_is_read_as_the_specification_writes_it():
    # The examples of protobuf's own description of its encoding.
    assert number(1, 150) == bytes.fromhex("089601")
    assert data(2, b"testing") == bytes.fromhex("120774657374696e67")
    assert data(3, number(1, 150)) == bytes.fromhex("1a03089601")


def test_fields_are_found_by_their_number():
    message = number(1, 7) + data(2, b"a") + data(2, b"b") + number(1, 8)
    assert number_in(message, 1) == 8
    assert all_in(message, 2) == [b"a", b"b"]
    assert data_in(message, 2) == b"b"
    assert text_in(message, 2) == "b"
    assert (number_in(message, 9), all_in(message, 9), data_in(message, 9)) == (0, [], b"")


def test_floats_are_passed_over():
    message = bytes.fromhex("39 0000000000000440") + bytes.fromhex("45 00000440") + number(1, 5)
    assert list(fields(message)) == [(1, 5)]


@pytest.mark.parametrize(
    "message",
    [
        b"\x08",
        b"\x80",
        b"\x0a",
        b"\x0a\x05abc",
        b"\x39\x00",
        b"\x0b",
        b"\x0f\x01",
        b"\xff" * 20,
        b"\x08" + b"\x80" * 99,
    ],
    ids=lambda message: message.hex()[:20],
)
def test_what_is_no_message_is_an_error(message):
    with pytest.raises(ValueError, match=r"cut short|no end"):
        list(fields(message))
