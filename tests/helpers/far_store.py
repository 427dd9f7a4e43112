"""An S3 store on the loopback interface that answers as one far away does: late, and at some bandwidth.

``python far_store.py '{"seconds": 0.03, "bandwidth": 80e6}'`` serves until its standard input ends. :func:`far_store`
starts and ends it. Objects and answers are moto's; this delays them, counts what was asked and goes wrong where that
is ordered, through a path of its own, which takes no time.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

CONTROL = "/-far-store/"
BUCKET = "far"
_PIECE = 1 << 18
_SILENT_SECONDS = 60
_SIGNED = {  # moto looks no closer, but gives nothing to those without
    "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}
_WRONG = {
    "error": (500, "InternalError"),
    "busy": (503, "SlowDown"),
    "missing": (404, "NoSuchKey"),
}


def no_store_because() -> str | None:
    """Return why there can be no store on this machine, None if there can."""
    try:
        import boto3  # noqa: F401
        import moto.server  # noqa: F401
    except ImportError as error:
        return f"needs moto[s3] and its server ({error})"
    return None


class FarStore:
    """A store under way.

    Attributes:
        endpoint: URL of the server.
        bucket: Name of the bucket.
    """

    def __init__(self, endpoint: str, bucket: str = BUCKET) -> None:
        self.endpoint = endpoint
        self.bucket = bucket

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which boto3, s3fs, pyarrow and streaming find the store."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_ENDPOINT_URL": self.endpoint,
            "S3_ENDPOINT_URL": self.endpoint,  # streaming's name
        }

    def client(self, *, connections: int = 10) -> Any:
        """Return a boto3 client for so many requests at once."""
        import boto3
        from botocore.config import Config

        names = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        config = Config(max_pool_connections=connections, s3={"addressing_style": "path"})
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1", config=config, **names
        )

    def put(self, directory: Path, prefix: str = "") -> str:
        """Put the files of a directory into the bucket, without delay or count; return the URL."""
        self._ask("put", {"directory": str(directory), "prefix": prefix})
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    def counts(self) -> dict[str, int]:
        """Return what was asked since the counting began.

        Requests by kind (``GET``, ``HEAD``, ``LIST``, ``PUT``, …), ``bytes_read``, ``bytes_written``, and by
        object ``read <key>``, the bytes that it gave, and ``asked <key>``, the requests for it. ``in_sequence``
        is the longest chain of requests of which each began after the one before had been answered.
        """
        found: dict[str, int] = self._ask("counts")
        return found

    def start_counting(self) -> None:
        """Begin again at zero."""
        self._ask("start")

    def fail(self, part_of_name: str, kind: str, times: int = 1) -> None:
        """Order faults: the next requests for objects with this in their key go wrong.

        Args:
            part_of_name: Of the keys.
            kind: ``error`` (500), ``busy`` (503), ``short`` (the connection is cut in mid-body), ``silent`` (no
                answer for a minute), ``missing`` (404) or ``replaced`` (from then on the object has other
                bytes, as many, and another ETag).
            times: How often.
        """
        self._ask("fail", {"name": part_of_name, "kind": kind, "times": times})

    def _ask(self, what: str, body: Any = None) -> Any:
        data = json.dumps(body).encode()
        with urllib.request.urlopen(self.endpoint + CONTROL + what, data, timeout=600) as answer:
            return json.load(answer)


@contextlib.contextmanager
def far_store(*, seconds: float = 0.03, bandwidth: float = 80e6) -> Iterator[FarStore]:
    """Run a store with an empty bucket for the block.

    Args:
        seconds: Until an answer begins.
        bandwidth: Bytes a second of one answer.
    """
    options = {"seconds": seconds, "bandwidth": bandwidth}
    server = subprocess.Popen(
        [sys.executable, __file__, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin
    assert server.stdout
    try:
        port = server.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the store ended with exit code {server.wait()}")
        yield FarStore(f"http://127.0.0.1:{port}")
    finally:
        server.stdin.close()
        server.stdout.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class Store:
    """moto's objects and answers, what was counted of requests, and the faults that were ordered."""

    def __init__(self, options: dict[str, float]) -> None:
        from moto.server import create_backend_app
        from werkzeug.test import Client

        self.seconds, self.bandwidth = options["seconds"], options["bandwidth"]
        self.moto = Client(create_backend_app("s3"))
        self.ask("PUT", f"/{BUCKET}")
        self.bodies: dict[tuple[str, str], bytes] = {}
        self.faults: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.chain_end = 0.0
        self.mutex = threading.Lock()

    def ask(self, method: str, path: str, headers: Any = (), data: bytes = b"") -> Any:
        """Return moto's answer."""
        return self.moto.open(
            path, method=method, headers=[*headers] or [*_SIGNED.items()], data=data
        )

    def control(self, what: str, given: Any) -> Any:
        """Do what :class:`FarStore` asks."""
        if what == "put":
            folder = Path(given["directory"])
            for path in filter(Path.is_file, sorted(folder.rglob("*"))):
                key = f"{given['prefix']}/{path.relative_to(folder).as_posix()}".lstrip("/")
                self.ask("PUT", f"/{BUCKET}/{quote(key)}", data=path.read_bytes())
        with self.mutex:
            if what == "counts":
                return dict(self.counts)
            if what == "start":
                self.counts.clear()
                self.chain_end = 0.0
            if what == "fail":
                self.faults.append(given)
        return None

    def count(self, **numbers: int) -> None:
        """Add to the counts."""
        with self.mutex:
            self.counts.update(numbers)

    def count_request(self, kind: str, key: str, began: float) -> None:
        """Count a request that has been answered."""
        now = time.monotonic()
        with self.mutex:
            self.counts[kind] += 1
            if key:
                self.counts[f"asked {key}"] += 1
            if began >= self.chain_end:  # taking the first to end gives the longest chain
                self.counts["in_sequence"] += 1
                self.chain_end = now

    def fault(self, key: str) -> str | None:
        """Return how a request for an object is to go wrong."""
        with self.mutex:
            for fault in self.faults:
                if fault["times"] and fault["name"] in key:
                    fault["times"] -= 1
                    return str(fault["kind"])
        return None

    def replace(self, path: str) -> None:
        """Give an object other bytes."""
        turned = self.ask("GET", path).data.translate(bytes(range(255, -1, -1)))
        self.ask("PUT", path, data=turned)

    def body(self, path: str, tag: str) -> memoryview:
        """Return the bytes of an object's version, which moto copies for each range of them."""
        if (path, tag) not in self.bodies:
            self.bodies[path, tag] = self.ask("GET", path).data
        return memoryview(self.bodies[path, tag])


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one connection's requests; it is kept open between them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: Store  # set on the class that serves
    uncounted: tuple[str, str, float] | None = None

    def answer(self) -> None:
        """Answer a request late, and count it."""
        given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if path.startswith(CONTROL):
            found = self.store.control(path.removeprefix(CONTROL), json.loads(given))
            self._send(200, [], json.dumps(found).encode())
            return
        key = unquote(path.lstrip("/").partition("/")[2])
        kind = self.command if key or self.command != "GET" else "LIST"
        self.uncounted = (kind, key, time.monotonic())
        try:
            self._answer(path, key, kind, given)
        except OSError:  # who asked is gone
            self.close_connection = True
        finally:
            self._count()

    def _count(self) -> None:
        """Count the request, before the last bytes of its answer go: who has these asks for more at once."""
        if self.uncounted:
            self.store.count_request(*self.uncounted)
            self.uncounted = None

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the base class's names

    def _answer(self, path: str, key: str, kind: str, given: bytes) -> None:
        store = self.store
        fault = store.fault(key) if key else None
        time.sleep(_SILENT_SECONDS if fault == "silent" else store.seconds)
        if fault in _WRONG:
            status, code = _WRONG[fault]
            text = f"<Error><Code>{code}</Code><Message>as was ordered</Message></Error>".encode()
            self._send(status, [("Content-Type", "application/xml")], text)
            return
        if fault == "replaced":
            store.replace(path)
        if kind == "GET":
            head = store.ask("HEAD", self.path, self.headers.items())
            if head.status_code in (200, 206):
                self._send_object(path, key, head, is_cut=fault == "short")
                return
        time.sleep(len(given) / store.bandwidth)
        store.count(bytes_written=len(given))
        found = store.ask(self.command, self.path, self.headers.items(), given)
        self._send(found.status_code, list(found.headers.items()), found.data)

    def _send_object(self, path: str, key: str, head: Any, *, is_cut: bool) -> None:
        """Send what a GET asks for, of which moto has said the size and place."""
        body = self.store.body(path, head.headers["ETag"])
        if head.status_code == 206:  # bytes 10-19/100
            first, last = head.headers["Content-Range"].split()[1].split("/")[0].split("-")
            body = body[int(first) : int(last) + 1]
        self._send_head(head.status_code, list(head.headers.items()), len(body))
        sent, begin = 0, time.monotonic()
        end = len(body) // 2 if is_cut else len(body)
        while sent < end:
            piece = body[sent : min(sent + _PIECE, end)]
            sent += len(piece)
            time.sleep(max(0.0, begin + sent / self.store.bandwidth - time.monotonic()))
            self.store.count(bytes_read=len(piece), **{f"read {key}": len(piece)})
            if sent == end:
                self._count()
            self.connection.sendall(piece)
        self.close_connection |= is_cut

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self._count()
        self._send_head(status, headers, len(body))
        if self.command != "HEAD":
            self.connection.sendall(body)

    def _send_head(self, status: int, headers: list[tuple[str, str]], length: int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "content-length"):
                self.send_header(name, value)
        sizes = [value for name, value in headers if name.lower() == "content-length"]
        self.send_header(
            "Content-Length", sizes[0] if sizes and self.command == "HEAD" else str(length)
        )
        self.end_headers()


class Server(http.server.ThreadingHTTPServer):
    """A thread for each connection."""

    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that are gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def serve(options: dict[str, float]) -> None:
    """Serve until standard input ends; the first line that is written is the port."""
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"store": Store(options)}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)  # answers under way are not waited for


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
