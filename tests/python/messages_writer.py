"""Protocol buffer messages, written by hand for tests of readers."""


def varint(v):
    v &= 2**64 - 1
    out = b""
    while v > 127:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])


def field(number, value):
    """A number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data
