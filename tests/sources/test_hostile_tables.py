"""What the files of a table say is data: nothing runs, nothing is sent, and nothing outside is read."""

import bz2
import gzip
import io
import json
import os
import shutil
import socket
import struct
import threading
import tracemalloc
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_log import field, stored_vector, write_table
from pyarrow import fs

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources.table_formats import ICEBERG, TableFormatError, TablePlace

_ARROW = int(pa.__version__.split(".", maxsplit=1)[0])
OUT = "not in its own directory"
PIPE = "a pipe, a socket or a device"


def ids(path):
    with make_batch_reader(f"file://{path}", reader_pool_type="dummy") as reader:
        return sorted(number for group in reader for number in group.id.tolist())


@pytest.fixture
def listener():
    """A server on this machine that notes who came, and says no to all."""
    came = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                came.append(client.recv(1000))
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}", came
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


@pytest.fixture
def iceberg(tmp_path):
    pytest.importorskip("sqlalchemy", reason="pyiceberg's catalog for tests needs it")
    if _ARROW < 17:
        pytest.skip("pyiceberg writes with Arrow 17 or newer")
    from pyiceberg.catalog.memory import InMemoryCatalog

    catalog = InMemoryCatalog("c", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    data = pa.table({"id": np.arange(4)})
    table = catalog.create_table("n.t", schema=data.schema)
    table.append(data)
    return table


def root_of(table):
    return table.location().removeprefix("file://")


def change_metadata(table, change):
    """Let a function change the newest metadata file, as the one who made the table may."""
    path = table.metadata_location.removeprefix("file://")
    with open(path) as stream:
        metadata = json.load(stream)
    change(metadata)
    with open(path, "w") as stream:
        json.dump(metadata, stream)


def change_manifest(table, *, manifest=None, data=None, rows=None, entries=1):
    """Write the current snapshot anew, with another manifest, or with something else told of the data file."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import write_manifest, write_manifest_list

    io, snapshot = PyArrowFileIO(), table.current_snapshot()
    (listed,) = snapshot.manifests(io)
    if data is not None or rows is not None:
        (entry,) = listed.fetch_manifest_entry(io)
        entry.data_file._data[1] = data or entry.data_file.file_path
        entry.data_file._data[4] = entry.data_file.record_count if rows is None else rows
        output = io.new_output(f"{table.location()}/metadata/changed-m0.avro")
        args = (2, table.spec(), table.schema(), output, snapshot.snapshot_id, "null")
        with write_manifest(*args) as writer:
            for _ in range(entries):
                writer.add_entry(entry)
        listed = writer.to_manifest_file()
    if manifest is not None:
        listed._data[0] = manifest
    name = f"{table.location()}/metadata/changed-list.avro"
    args = (2, io.new_output(name), snapshot.snapshot_id, None, 1, "null")
    with write_manifest_list(*args) as writer:
        writer.add_manifests([listed])
    change_metadata(
        table, lambda metadata: metadata["snapshots"][-1].update({"manifest-list": name})
    )
    from pyiceberg.manifest import clear_manifest_cache

    clear_manifest_cache()  # the test's own reading must not be seen in it


IMPLEMENTATIONS = {
    "a shell": {"py-io-impl": "subprocess.getoutput"},
    "a module": {"py-io-impl": "hostile_module.IO"},
    "a catalog": {"py-catalog-impl": "hostile_module.IO", "type": "rest"},
    "a provider": {"write.py-location-provider.impl": "hostile_module.IO"},
    "another library": {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_class_that_metadata_name_is_not_loaded(iceberg, tmp_path, monkeypatch, name):
    marker = tmp_path / "ran"
    (tmp_path / "hostile_module.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nclass IO:\n    def __init__(self, *_): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    command = {f"touch {marker} #": ""}
    properties = {**command, **IMPLEMENTATIONS[name]}
    change_metadata(iceberg, lambda metadata: metadata.update(properties=properties))
    assert ids(root_of(iceberg)) == [0, 1, 2, 3]
    assert not marker.exists()


@pytest.mark.parametrize("part", ["manifest list", "manifest", "data", "metadata alone"])
def test_no_request_follows_from_an_iceberg_table(iceberg, listener, monkeypatch, part):
    url, came = listener
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "the-users-own")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    properties = {
        "s3.endpoint": url,
        "s3.proxy-uri": url,
        "s3.signer": "S3V4RestSigner",
        "s3.signer.uri": url,
        "s3.access-key-id": "another",
        "s3.secret-access-key": "another",
        "adls.connection-string": f"BlobEndpoint={url};AccountName=a;AccountKey=YQ==",
        "gcs.service.host": url,
        "hf.endpoint": url,
        "uri": url,
    }
    for name in ("s3://bucket/x.avro", "gs://bucket/x", "abfss://c@a.dfs.core.windows.net/x", url):
        if part == "manifest":
            change_manifest(iceberg, manifest=name)
        elif part == "data":
            change_manifest(iceberg, data=name)

        def change(metadata, name=name):
            metadata["properties"] = properties
            if part == "manifest list":
                metadata["snapshots"][-1]["manifest-list"] = name

        change_metadata(iceberg, change)
        if part == "metadata alone":
            assert ids(root_of(iceberg)) == [0, 1, 2, 3]
        else:
            with pytest.raises(TableFormatError, match=OUT):
                ids(root_of(iceberg))
    assert came == []


@pytest.mark.parametrize("part", ["manifest list", "manifest", "data", "deletes"])
def test_what_is_outside_of_an_iceberg_table_is_not_read(iceberg, tmp_path, part):
    from iceberg_deletes import delete_rows

    root = root_of(iceberg)
    (task,) = iceberg.scan().plan_files()
    data = task.file.file_path.removeprefix("file://")
    snapshot = iceberg.current_snapshot()
    sources = {
        "manifest list": snapshot.manifest_list,
        "manifest": snapshot.manifests(iceberg.io)[0].manifest_path,
        "data": data,
        "deletes": data,
    }
    source = sources[part].removeprefix("file://")
    other = shutil.copy(source, tmp_path / f"other-{os.path.basename(source)}")
    os.mkfifo(f"{root}/data/pipe")
    up = os.path.relpath(other, root)
    outside = [
        str(other),
        f"file://{other}",
        f"file:{other}",
        f"{root}/{up}",
        f"file://{root}/data/../{up}",
        up,
        "//" + str(other),
        f"{root}-more/x.parquet",
        f"dbfs:{other}",
        f"s3://bucket{other}",
        f"{other}\0",
    ]
    expected = dict.fromkeys(outside, OUT) | {"file://elsewhere/x": "names a host"}
    expected[f"{root}/data/pipe"] = "no file" if part == "data" else PIPE
    for name, told in expected.items():
        if part == "manifest list":
            change_metadata(
                iceberg, lambda m, name=name: m["snapshots"][-1].update({"manifest-list": name})
            )
        elif part == "manifest":
            change_manifest(iceberg, manifest=name)
        elif part == "data":
            change_manifest(iceberg, data=name)
        else:
            delete_rows(iceberg, task.file.file_path, [0], named=name)
        with pytest.raises((TableFormatError, OSError), match=told):
            ids(root)
    # Encoded dots are a name like any other.
    if part == "data":
        change_manifest(iceberg, data=f"file://{root}/data/%2e%2e/%2e%2e/x")
        with pytest.raises(OSError, match="%2e%2e/x"):
            ids(root)


def test_an_iceberg_table_in_a_store_is_read_by_the_file_system_that_found_it(iceberg):
    store = pytest.importorskip("fsspec", reason="opens stores").filesystem("memory")
    root, url = root_of(iceberg), "memory://w/t"
    (task,) = iceberg.scan().plan_files()
    data = f"{url}/data/{os.path.basename(task.file.file_path)}"
    change_manifest(iceberg, data=data, manifest=f"{url}/metadata/changed-m0.avro")
    listing = {"manifest-list": f"{url}/metadata/changed-list.avro"}
    change_metadata(iceberg, lambda metadata: metadata["snapshots"][-1].update(listing))
    store.put(root, "/w/t", recursive=True)
    with make_batch_reader(url, reader_pool_type="dummy") as reader:
        assert sorted(i for group in reader for i in group.id.tolist()) == [0, 1, 2, 3]
    store.rm("/w", recursive=True)


def test_links_of_the_file_system_are_followed(iceberg, tmp_path):
    """As in loose Parquet: whoever may put a link there may also put the file there."""
    (task,) = iceberg.scan().plan_files()
    path = task.file.file_path.removeprefix("file://")
    shutil.move(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    os.symlink(root_of(iceberg), tmp_path / "link")
    assert ids(root_of(iceberg)) == ids(tmp_path / "link") == [0, 1, 2, 3]


def test_another_table_has_no_say_in_what_is_read(iceberg):
    """pyiceberg keeps what lists said of a manifest by its path, whoever's list it was."""
    from pyiceberg.manifest import _manifest_cache, read_manifest_list

    change_manifest(iceberg)
    listing = f"{iceberg.location()}/metadata/changed-list.avro"
    (manifest,) = read_manifest_list(iceberg.io.new_input(listing))
    manifest._data[0], path = f"{iceberg.location()}/metadata/none.avro", manifest.manifest_path
    _manifest_cache._cache[path] = manifest
    assert ids(root_of(iceberg)) == [0, 1, 2, 3]
    _manifest_cache.clear()


def test_damaged_deletes_and_lists_are_refused(iceberg):
    from iceberg_deletes import delete_rows

    (task,) = iceberg.scan().plan_files()
    root = root_of(iceberg)
    held = {
        "null": pa.table({"file_path": [None], "pos": [0]}),
        "no position": pa.table(
            {"file_path": [task.file.file_path], "pos": pa.array([None], pa.int64())}
        ),
        "fraction": pa.table({"file_path": [task.file.file_path], "pos": [0.5]}),
    }
    for name, table in held.items():
        path = f"{root}/data/{name}.parquet"
        pq.write_table(table, path)
        delete_rows(iceberg, task.file.file_path, [0], named=path)
        with pytest.raises(TableFormatError, match=r"null|truncated"):
            ids(root)
    # A vector with a gap of 2**31 keys, which a reader of lists would fill.
    delete_rows(iceberg, task.file.file_path, [0], kind="PUFFIN")
    path = f"{root}/data/deletes.puffin"
    with open(path, "rb") as stream:
        puffin = stream.read()
    key = b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0)
    assert key in puffin
    far = puffin.replace(key, key[:-4] + struct.pack("<I", 2**31 - 1))
    with open(path, "wb") as stream:
        stream.write(far)
    assert ids(root) == [0, 1, 2, 3]
    with open(path, "wb") as stream:
        stream.write(puffin.replace(b"\xd1\xd3\x39\x64", b"\0\0\0\0"))
    with pytest.raises(TableFormatError, match="of another kind"):
        ids(root)
    os.remove(f"{root}/metadata/00099-by-hand.metadata.json")
    with open(f"{root}/metadata/list.avro", "w") as stream:
        stream.write("no Avro")
    listing = f"{root}/metadata/list.avro"
    change_metadata(iceberg, lambda m: m["snapshots"][-1].update({"manifest-list": listing}))
    with pytest.raises(TableFormatError, match="is an Iceberg table"):
        ids(root)


def bitmap_of_runs(containers):
    """Return a vector of all positions in some containers of 65,536: six bytes for each of them."""
    keys = np.arange(containers, dtype="<u2")
    described = np.stack([keys, np.full_like(keys, 65535)], 1).tobytes()
    offsets = bytes(4 * containers) if containers >= 4 else b""
    start = struct.pack("<I", 12347 | containers - 1 << 16) + b"\xff" * ((containers + 7) // 8)
    runs = struct.pack("<HHH", 1, 0, 65535) * containers
    return b"\xd1\xd3\x39\x64" + struct.pack("<QI", 1, 0) + start + described + offsets + runs


@pytest.mark.modern
@pytest.mark.slow
def test_a_vector_is_as_large_as_the_rows_of_its_file(iceberg):
    """Four billion positions, from a megabyte, of a file of four rows."""
    from iceberg_deletes import delete_rows

    (task,) = iceberg.scan().plan_files()
    delete_rows(iceberg, task.file.file_path, [0], kind="PUFFIN")
    vector = bitmap_of_runs(4096)
    blob = struct.pack(">I", len(vector)) + vector + bytes(4)
    told = {"type": "deletion-vector-v1", "fields": [], "snapshot-id": 77, "sequence-number": 2}
    told |= {"offset": 4, "length": len(blob)}
    told["properties"] = {"referenced-data-file": task.file.file_path}
    footer = json.dumps({"blobs": [told] * 20}).encode()
    end = struct.pack("<II", len(footer), 0) + b"PFA1"
    with open(f"{root_of(iceberg)}/data/deletes.puffin", "wb") as stream:
        stream.write(b"PFA1" + blob + b"PFA1" + footer + end)
    tracemalloc.start()
    try:
        with pytest.warns(UserWarning, match="No matching data"):
            assert ids(root_of(iceberg)) == []
        assert tracemalloc.get_traced_memory()[1] < 100 * len(blob)
    finally:
        tracemalloc.stop()


def test_positions_may_be_deleted_any_number_of_times(iceberg):
    from iceberg_deletes import delete_rows

    (task,) = iceberg.scan().plan_files()
    path, rows = f"{root_of(iceberg)}/data/often.parquet", 300_000
    held = {"file_path": [task.file.file_path] * rows, "pos": np.arange(rows) % 2 - 1}
    pq.write_table(pa.table(held), path)
    delete_rows(iceberg, task.file.file_path, [0], named=path)
    assert ids(root_of(iceberg)) == [1, 2, 3]


def test_a_manifest_that_is_listed_twice(iceberg):
    from pyiceberg.manifest import write_manifest_list

    snapshot, name = iceberg.current_snapshot(), f"{iceberg.location()}/metadata/twice.avro"
    (manifest,) = snapshot.manifests(iceberg.io)
    args = (2, iceberg.io.new_output(name), snapshot.snapshot_id, None, 1, "null")
    with write_manifest_list(*args) as writer:
        writer.add_manifests([manifest, manifest])
    change_metadata(iceberg, lambda m: m["snapshots"][-1].update({"manifest-list": name}))
    with pytest.raises(TableFormatError, match="names one of them twice"):
        ids(root_of(iceberg))


@pytest.mark.parametrize("told", [0, 1, 3, 5, -1])
def test_the_rows_are_those_of_the_file_whatever_its_manifest_counts(iceberg, told):
    """A planner would leave out a file of which it is told that it has no rows."""
    change_manifest(iceberg, rows=told)
    assert ids(root_of(iceberg)) == [0, 1, 2, 3]


def test_a_file_without_rows_is_none_less(iceberg):
    iceberg.append(pa.table({"id": pa.array([], pa.int64())}))
    assert ids(root_of(iceberg)) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["PARQUET", "PUFFIN"])
def test_deletes_are_applied_whatever_their_manifest_counts(iceberg, monkeypatch, kind):
    import iceberg_deletes

    (task,) = iceberg.scan().plan_files()
    make = iceberg_deletes.DataFile.from_args

    class Uncounted:
        from_args = staticmethod(lambda **arguments: make(**{**arguments, "record_count": 0}))

    monkeypatch.setattr(iceberg_deletes, "DataFile", Uncounted)
    iceberg_deletes.delete_rows(iceberg, task.file.file_path, [1, 2], kind=kind)
    assert ids(root_of(iceberg)) == [0, 3]


def test_a_file_that_a_manifest_names_twice(iceberg):
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import write_manifest

    (task,) = iceberg.scan().plan_files()
    (listed,) = iceberg.current_snapshot().manifests(iceberg.io)
    (entry,) = listed.fetch_manifest_entry(iceberg.io)
    manifest = f"{iceberg.location()}/metadata/often.avro"
    output = PyArrowFileIO().new_output(manifest)
    with write_manifest(2, iceberg.spec(), iceberg.schema(), output, 1, "null") as writer:
        for path in (task.file.file_path, f"{root_of(iceberg)}/./data/../data/"):
            whole = path.endswith("/") and path + os.path.basename(task.file.file_path)
            entry.data_file._data[1] = whole or path
            writer.add_entry(entry)
    change_manifest(iceberg, manifest=manifest)
    with pytest.raises(TableFormatError, match=r"It names .*parquet twice"):
        ids(root_of(iceberg))


def avro(content, codec, blocks):
    """Return an Avro file with the header of another, another codec, and other blocks: (records, bytes)."""
    from pyiceberg.avro.decoder import new_decoder
    from pyiceberg.avro.encoder import BinaryEncoder
    from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
    from pyiceberg.avro.resolver import construct_reader, construct_writer

    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(new_decoder(content))
    header.meta["avro.codec"] = codec
    out = io.BytesIO()
    encoder = BinaryEncoder(out)
    construct_writer(META_SCHEMA).write(encoder, header)
    for records, block in blocks:
        encoder.write_int(records)
        encoder.write_bytes(block)
        encoder.write(header.sync)
    return out.getvalue()


def blocks_of(content):
    """Return the blocks of an Avro file without compression, and where each of them ends."""
    from pyiceberg.avro.decoder import new_decoder
    from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
    from pyiceberg.avro.resolver import construct_reader

    decoder, blocks = new_decoder(content), []
    construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    while decoder.tell() < len(content):
        blocks.append((decoder.read_int(), decoder.read_bytes()))
        decoder.skip(16)
    return blocks


def avro_files(table, entries=1):
    """Let the current snapshot's files have no compression; return list and manifest."""
    change_manifest(table, rows=4, entries=entries)
    return [f"{root_of(table)}/metadata/changed-{name}.avro" for name in ("list", "m0")]


@pytest.mark.parametrize("which", [0, 1], ids=["list", "manifest"])
@pytest.mark.parametrize("records", [0, -1])
def test_no_manifest_ends_before_its_end(iceberg, which, records):
    name = avro_files(iceberg)[which]
    with open(name, "rb") as stream:
        content = stream.read()
    blocks = blocks_of(content)
    for changed, told in (
        (avro(content, "null", blocks), None),
        (avro(content, "null", [*blocks, (records, b"")]), None),  # as an empty one is written
        (avro(content, "null", [(records, b""), *blocks]), "without records is not the last"),
        (content[:-1], "is damaged or cut off"),
        (content[:-17], "cannot be read|is damaged or cut off"),
    ):
        with open(name, "wb") as stream:
            stream.write(changed)
        if told is None:
            assert ids(root_of(iceberg)) == [0, 1, 2, 3]
        else:
            with pytest.raises(TableFormatError, match=told):
                ids(root_of(iceberg))


@pytest.mark.parametrize("which", [0, 1], ids=["list", "manifest"])
def test_no_manifest_has_fewer_records_than_were_counted(iceberg, which):
    """What is cut off behind the header of an Avro file, or behind a block, leaves a whole Avro file."""
    name = avro_files(iceberg, entries=2)[which]
    with open(name, "rb") as stream:
        content = stream.read()
    blocks = blocks_of(content)
    cut = [[], [(1, b"".join(block for _, block in blocks))]] if which else [[]]
    for left in cut:
        with open(name, "wb") as stream:
            stream.write(avro(content, "null", left))
        with pytest.raises(TableFormatError, match=rf"has {len(left)} of {len(blocks)} records"):
            ids(root_of(iceberg))


def packed(codec, size):
    """Return so many zeros, compressed."""
    if codec == "deflate":
        return zlib.compress(bytes(size), 9)[2:-4]
    if codec == "bzip2":
        return bz2.compress(bytes(size))
    if codec == "zstandard":
        return pa.Codec("zstd").compress(bytes(size), asbytes=True)
    return pa.Codec("snappy").compress(bytes(size), asbytes=True) + b"\0\0\0\0"


@pytest.mark.parametrize("which", [0, 1], ids=["list", "manifest"])
@pytest.mark.parametrize("codec", ["deflate", "bzip2", "zstandard", "snappy"])
def test_no_manifest_is_unpacked_without_bound(iceberg, which, codec):
    name, size = avro_files(iceberg)[which], 1 << 27
    with open(name, "rb") as stream:
        content = stream.read()
    bomb = avro(content, codec, [(1, packed(codec, size))])
    if codec == "snappy":  # the format allows no more, but to claim any size
        bomb = avro(content, codec, [(1, b"\x80\x80\x80\x40" + bytes(20))])
    with open(name, "wb") as stream:
        stream.write(bomb)
    tracemalloc.start()
    try:
        with pytest.raises(TableFormatError, match="holds more than 100 times its own size"):
            ids(root_of(iceberg))
        assert tracemalloc.get_traced_memory()[1] < size / 2
    finally:
        tracemalloc.stop()


def test_zipped_metadata_are_not_unpacked_without_bound(iceberg, monkeypatch):
    from petastorm_bridge._sources import iceberg as reading

    monkeypatch.setattr(reading, "_ALWAYS_UNZIPPED", 1 << 20)
    path = iceberg.metadata_location.removeprefix("file://")
    zipped = path.replace(".metadata.json", ".gz.metadata.json")
    with open(path, "rb") as stream:
        content = stream.read()
    os.remove(path)
    for blanks, told in (0, None), (1 << 26, "holds more than 100 times its own size"):
        with gzip.open(zipped, "wb") as stream:
            stream.write(content + b" " * blanks)
        tracemalloc.start()
        try:
            if told is None:
                assert ids(root_of(iceberg)) == [0, 1, 2, 3]
            else:
                with pytest.raises(TableFormatError, match=told):
                    ids(root_of(iceberg))
            assert tracemalloc.get_traced_memory()[1] < blanks / 2 + 10_000_000
        finally:
            tracemalloc.stop()


DATA = pa.table({"id": np.arange(4)})


@pytest.fixture
def delta(tmp_path):
    pytest.importorskip("deltalake", reason="reads the logs")
    root = tmp_path / "t"
    write_table(root, [field("id", "long")], {"a.parquet": (DATA, {})})
    return root


def write_checkpoint(root, name, *, kind="json", line=None):
    """Put a checkpoint with one sidecar in the place of the first version."""
    log = root / "_delta_log"
    first = log / f"{0:020}.json"
    protocol, metadata = map(json.loads, first.read_text().splitlines()[:2])
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    sidecar = {"path": name, "sizeInBytes": 1000, "modificationTime": 1}
    actions = [{"protocol": features}, metadata, {"checkpointMetadata": {"version": 1}}]
    stem = log / f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"
    if kind == "json":
        told = [*map(json.dumps, actions), line or json.dumps({"sidecar": sidecar})]
        stem.with_name(stem.name + ".json").write_text("\n".join(told))
    else:
        # Empty structs are nothing that Parquet can hold.
        metadata["metaData"].pop("configuration")
        metadata["metaData"]["format"].pop("options")
        stem = log / f"{1:020}.checkpoint" if kind == "classic" else stem
        rows = pa.Table.from_pylist(
            [{"protocol": features, "metaData": None, "sidecar": None}, metadata,
             {"sidecar": sidecar}],
            pa.schema([(n, pa.Table.from_pylist([{n: v}]).schema.field(n).type) for n, v in
                       {"protocol": features, **metadata, "sidecar": sidecar}.items()]),
        )  # fmt: skip
        pq.write_table(rows, stem.with_name(stem.name + ".parquet"))
    (log / f"{1:020}.json").write_text(json.dumps({"commitInfo": {"timestamp": 1}}) + "\n")
    first.unlink()
    return protocol


SIGNED = "/x.parquet?X-Amz-Signature=1"  # such addresses deltalake opens by itself


@pytest.mark.parametrize("suffix", ["", "@v1", "@20990101000000000"])
@pytest.mark.parametrize("kind", ["json", "parquet", "classic"])
def test_no_request_follows_from_a_sidecar(delta, listener, kind, suffix):
    url, came = listener
    write_checkpoint(delta, url + SIGNED, kind=kind)
    with pytest.raises(TableFormatError, match=OUT):
        ids(f"{delta}{suffix}")
    assert came == []


@pytest.mark.parametrize("digits", ["9" * 20, "\u0661".rjust(20, "\u0660"), "9"])
def test_a_checkpoint_that_is_none_hides_no_other(delta, listener, digits):
    url, came = listener
    write_checkpoint(delta, url + SIGNED)
    decoy = pa.table({"protocol": pa.array([None], pa.string())})
    pq.write_table(decoy, delta / "_delta_log" / f"{digits}.checkpoint.parquet")
    with pytest.raises(TableFormatError, match=OUT):
        ids(delta)
    assert came == []


def test_names_in_a_remote_table_stay_in_its_directory():
    pytest.importorskip("fsspec", reason="opens stores")
    memory = fs.PyFileSystem(fs.FSSpecHandler(fsspec_memory()))
    place = TablePlace(ICEBERG, memory, "/b/t", "/b/t", url="memory://b/t")
    assert place.inside("memory://b/t/data/x%2e y.parquet") == "/b/t/data/x%2e y.parquet"
    for name in (
        "memory://b/t/../x",
        "memory://b/tt/x",
        "memory://b/t",
        "memory://other/t/x",
        "s3://b/t/x",
        "/b/t/x",
        "file:///b/t/x",
        "memory:///b/t/x",
        "../x",
        "memory://user@b/t/x",
    ):
        with pytest.raises(TableFormatError, match=OUT):
            place.inside(name)


def fsspec_memory():
    import fsspec

    return fsspec.filesystem("memory")


def test_sidecars_are_in_their_own_directory(delta, listener):
    url, came = listener
    first = (delta / "_delta_log" / f"{0:020}.json").read_text()
    named = [f"file://{delta}/a.parquet", "../x.parquet", "/etc/passwd", "%2e%2e/x", "", "a\\b"]
    for name in [*named, "..", "s3://bucket/x"]:
        write_checkpoint(delta, name)
        with pytest.raises(TableFormatError, match=OUT):
            ids(delta)
        (delta / "_delta_log" / f"{0:020}.json").write_text(first)
    good, bad = (
        json.dumps({"path": path, "sizeInBytes": 9, "modificationTime": 1})
        for path in ("x.parquet", url + SIGNED)
    )
    for line in (
        f'{{"sidecar": {bad}, "sidecar": {good}}}',
        f'{{"sidecar": {good}, "sidecar": {bad}}}',
        f'{{"sidecar": {good}}} {{"sidecar": {bad}}}',
        f'{{"\\u0073idecar": {bad}}}',
    ):
        write_checkpoint(delta, "", line=line)
        with pytest.raises(TableFormatError, match=f"twice|Extra data|{OUT}"):
            ids(delta)
        (delta / "_delta_log" / f"{0:020}.json").write_text(first)
    write_checkpoint(delta, "pipe.parquet")
    (delta / "_delta_log" / "_sidecars").mkdir()
    os.mkfifo(delta / "_delta_log" / "_sidecars" / "pipe.parquet")
    with pytest.raises(TableFormatError, match=PIPE):
        ids(delta)
    assert came == []


def test_the_files_of_vectors_are_the_tables_own(delta, tmp_path, listener):
    url, came = listener
    os.mkfifo(tmp_path / "pipe")
    digits = "vBn[lx{q8@P<9BNH/isA"  # of the protocol's own example
    pipe = delta / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    for kind, name in (
        ("p", f"file://{tmp_path}/pipe"),
        ("p", "file:///dev/zero"),
        ("p", url + SIGNED),
        ("p", "s3://bucket/x"),
        ("u", f"../{digits}"),
        ("u", f"{url}/{digits}"),
        ("u", f"{tmp_path}/{digits}"),
        ("u", "short"),
        ("u", digits),
        ("u", f"ab{digits}"),
        ("x", digits),
    ):
        if kind == "u" and name.endswith(digits) and name[:-20] in ("", "ab"):
            place = delta / name[:-20] / pipe.name
            place.parent.mkdir(exist_ok=True)
            os.mkfifo(place)
        vector = {"storageType": kind, "pathOrInlineDv": name, "offset": 1}
        vector |= {"sizeInBytes": 34, "cardinality": 1}
        files = {"a.parquet": (DATA, {"deletionVector": vector})}
        write_table(delta, [field("id", "long")], files, features=["deletionVectors"])
        with pytest.raises(TableFormatError, match=f"{OUT}|{PIPE}|cannot be read"):
            ids(delta)
    assert came == []


FAR = struct.pack("<IQI", 1681511377, 1, 2**31 - 1)
ONE = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 1)
VECTORS = {
    "far behind the rows": (FAR + ONE, 1, "0 of 4 rows are deleted, where the log says 1"),
    "all there can be": (bitmap_of_runs(65535), 65535 * 65536, "4 of 4 rows are deleted"),
    "too few": (FAR[:12] + bytes(4) + ONE, 3, "1 of 4 rows are deleted, where the log says 3"),
    "many bitmaps": (FAR[:4] + struct.pack("<QI", 2**62, 0) + ONE, 1, "is cut off"),
    "many containers": (FAR + struct.pack("<II", 12346, 2**32 - 1), 1, "is cut off"),
    "cut off": ((FAR + ONE)[:-1], 1, "is cut off"),
    "another kind": (bytes(4) + (FAR + ONE)[4:], 1, "of another kind"),
    "another bitmap": (FAR + bytes(16), 1, "is cut off"),
    "empty": (b"", 1, "of another kind"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow if "all" in each else ()) for each in VECTORS],
)
def test_no_vector_takes_more_memory_than_its_rows(delta, name):
    """deltalake would allocate as much as they say, and end the process where it cannot."""
    vector, count, told = VECTORS[name]
    files = {"a.parquet": (DATA, stored_vector(vector, count))}
    write_table(delta, [field("id", "long")], files, features=["deletionVectors"])
    tracemalloc.start()
    try:
        with pytest.raises(TableFormatError, match=told):
            ids(delta)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000 + 20 * len(vector)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["./a.parquet", "x/../a.parquet", "%61.parquet"])
def test_a_file_that_a_log_names_twice(delta, name):
    files = {"a.parquet": (DATA, {}), name: (None, {})}
    write_table(delta, [field("id", "long")], files)
    with pytest.raises(TableFormatError, match=r"It names .*/a\.parquet twice"):
        ids(delta)


def test_properties_of_a_delta_table_are_no_options(delta, listener):
    url, came = listener
    configuration = dict.fromkeys(
        ("AWS_ENDPOINT_URL", "aws_endpoint", "proxy_url", "delta.logStore", "location"), url
    )
    files = {"s3://bucket/a.parquet": (None, {}), "a.parquet": (DATA, {})}
    fields = [field("id", "long")]
    write_table(delta, fields, {"a.parquet": (DATA, {})}, configuration=configuration)
    assert ids(delta) == [0, 1, 2, 3]
    write_table(delta, fields, files, configuration=configuration)
    with pytest.raises(TableFormatError, match=OUT):
        ids(delta)
    assert came == []
