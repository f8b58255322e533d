"""What Schemathesis can't know by itself: bodies that are bytes."""

import schemathesis


@schemathesis.serializer("application/x-tar", "application/octet-stream")
def as_bytes(_context, value):
    return value if isinstance(value, bytes) else str(value).encode()
