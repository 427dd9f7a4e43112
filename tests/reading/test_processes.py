"""`reader_pool_type='process'`: real processes, in order, and none of them left behind."""

import collections
import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import cloudpickle
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._workers import threads
from petastorm_bridge._workers.worker import receive, send
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.reader import _pool
from petastorm_bridge.reader._pool import pack_block, unpack_block

pytestmark = pytest.mark.slow

ROWS, GROUPS = 5, 12

# Workers cannot import a module of tests; what is defined here goes to them as from `__main__`.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An MDS dataset of 12 shards with 5 rows: numbers, text, lists."""
    folder = tmp_path_factory.mktemp("processes")
    ids = np.arange(ROWS * GROUPS)
    table = pa.table(
        {
            "id": ids,
            "x": (ids / 2).astype(np.float32),
            "s": pa.array([None if i % 7 == 3 else f"text {i}" for i in ids]),
            "l": [[int(i), int(i) + 1] for i in ids],
        }
    )
    writer = ShardWriter(table.schema, str(folder), prefix="shard", size_limit=1, min_rows=ROWS)
    for start in range(0, len(ids), ROWS):
        writer.write(table.slice(start, ROWS).to_batches()[0])
    commit_dataset(str(folder), table.schema, writer.finish())
    return folder.as_uri()


def with_pid(frame):
    import os

    return frame.assign(pid=os.getpid())


PID = TransformSpec(with_pid, edit_fields=[("pid", np.int64, (), False)])


def open_reader(url, transform=PID, **options):
    options = {"workers_count": 1, "shuffle_row_groups": False} | options
    return make_batch_reader(url, reader_pool_type="process", transform_spec=transform, **options)


def children():
    """The pool's processes; a Spark session of other tests has children of its own."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            if any("petastorm_bridge" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


def wait_for(condition, patience=20.0):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.smoke
def test_blocks_come_in_order_from_other_processes(url, no_leaks):
    with no_leaks():
        with open_reader(url, num_epochs=2, workers_count=2) as reader:
            groups = list(reader)
        del reader
    assert [g.id.tolist() for g in groups] == [
        list(range(i * ROWS, (i + 1) * ROWS)) for i in range(GROUPS)
    ] * 2
    pids = {int(g.pid[0]) for g in groups}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2


def test_columns_are_those_of_threads(url):
    with make_batch_reader(url, transform_spec=PID, shuffle_row_groups=False) as reader:
        expected = list(reader)
    with open_reader(url) as reader:
        found = list(reader)
    for one, other in zip(expected, found, strict=True):
        for name in ("id", "x", "s", "l"):
            left, right = getattr(one, name), getattr(other, name)
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


def test_a_seed_gives_the_order_of_threads(url):
    options = {"seed": 3, "shuffle_rows": True, "shuffle_row_groups": True, "num_epochs": 2}
    with make_batch_reader(url, **options) as reader:
        expected = [g.id.tolist() for g in reader]
    with open_reader(url, workers_count=2, **options) as reader:
        assert [g.id.tolist() for g in reader] == expected


def test_predicate_and_filters_run_in_the_workers(url):
    predicate = in_lambda(["id"], lambda ids: ids % 2 == 0)
    with open_reader(url, predicate=predicate, filters=[("id", ">", 10)]) as reader:
        ids = np.concatenate([g.id for g in reader])
    assert ids.tolist() == list(range(12, 60, 2))


def test_reads_parquet(tmp_path):
    for key in ("a", "b"):
        folder = tmp_path / f"k={key}"
        folder.mkdir()
        pq.write_table(pa.table({"id": np.arange(4)}), folder / "x.parquet", row_group_size=2)
    with make_batch_reader(
        tmp_path.as_uri(), reader_pool_type="process", workers_count=2, shuffle_row_groups=False
    ) as reader:
        found = [(g.k.tolist(), g.id.tolist()) for g in reader]
    assert found == [
        (["a"] * 2, [0, 1]), (["a"] * 2, [2, 3]), (["b"] * 2, [0, 1]), (["b"] * 2, [2, 3]),
    ]  # fmt: skip


@pytest.mark.modern
def test_a_pass_after_the_first_uses_the_same_processes(url, no_leaks):
    with no_leaks():
        with open_reader(url) as reader:
            first = {int(g.pid[0]) for g in reader}
            reader.reset()
            second = {int(g.pid[0]) for g in reader}
        del reader
    assert first == second


@pytest.mark.modern
def test_early_break_leaves_nothing(url, no_leaks):
    with no_leaks():
        for workers in (1, 2):
            with open_reader(url, num_epochs=None, workers_count=workers) as reader:
                next(reader)
        del reader


def test_garbage_collection_ends_the_processes(url, no_leaks):
    with no_leaks(20.0):
        reader = open_reader(url, num_epochs=None)
        next(reader)
        assert children()
        del reader
        gc.collect()


def test_nothing_starts_before_the_first_block(url):
    with open_reader(url):
        assert children() == []


def test_reads_ahead_no_more_than_asked(url, tmp_path):
    def note(frame, folder=str(tmp_path)):
        import pathlib

        pathlib.Path(folder, str(frame["id"][0])).touch()
        return frame

    def settled():
        count = len(list(tmp_path.iterdir()))
        time.sleep(0.5)
        return count == len(list(tmp_path.iterdir()))

    with open_reader(url, TransformSpec(note), workers_count=2, results_queue_size=3) as reader:
        next(reader)
        assert wait_for(settled)
        # One taken, three in work or waiting, and the one that took its place.
        assert len(list(tmp_path.iterdir())) <= 1 + 3


class LocalError(Exception):
    def __init__(self, code, detail):
        super().__init__(code, detail)
        self.detail = detail


class TwoArgumentsError(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


class TestErrors:
    def test_comes_as_it_was_raised(self, url, no_leaks):
        def fail(frame):
            raise LocalError(7, {"rows": len(frame)})

        with no_leaks():
            with (
                open_reader(url, TransformSpec(fail)) as reader,
                pytest.raises(LocalError) as caught,
            ):
                next(reader)
            assert caught.value.detail == {"rows": ROWS}
            assert caught.value.args == (7, {"rows": ROWS})
            text = str(caught.value.__cause__)
            assert "raise LocalError(7" in text
            assert "Traceback" in text
            del caught, reader
            gc.collect()

    def test_that_does_not_pickle_becomes_a_runtime_error(self, url):
        def fail(frame):
            raise TwoArgumentsError("this", "that")

        with (
            open_reader(url, TransformSpec(fail)) as reader,
            pytest.raises(RuntimeError, match="raised TwoArgumentsError: this and that") as e,
        ):
            next(reader)
        assert 'raise TwoArgumentsError("this", "that")' in str(e.value)

    def test_of_a_class_made_in_the_transform(self, url):
        def fail(frame):
            class MadeHereError(ValueError):
                pass

            raise MadeHereError("made there")

        with (
            open_reader(url, TransformSpec(fail)) as reader,
            pytest.raises(ValueError, match="made there"),
        ):
            next(reader)

    def test_other_row_groups_can_still_be_read_after_it(self, url):
        def fail_once(frame):
            if frame["id"][0] == 0:
                raise KeyError("first")
            return frame

        reader = open_reader(url, TransformSpec(fail_once))
        with reader, pytest.raises(KeyError, match="first"):
            list(reader)

    @pytest.mark.parametrize(
        ("end", "how"),
        [
            (lambda: os.kill(os.getpid(), signal.SIGKILL), r"signal 9 \(SIGKILL\)"),
            (lambda: os._exit(3), "exit code 3"),
        ],
    )
    def test_a_dead_worker_is_reported(self, url, no_leaks, end, how):
        def die(frame):
            end()

        with no_leaks():
            with (
                open_reader(url, TransformSpec(die)) as reader,
                pytest.raises(RuntimeError, match=f"ended (by|with) {how}.*row group 0"),
            ):
                next(reader)
            del reader

    def test_a_dead_worker_whose_child_lives_on_is_reported(self, url, tmp_path):
        note = tmp_path / "child"

        def fork_and_die(frame):
            import os
            import time

            child = os.fork()
            if child == 0:
                time.sleep(300)
                os._exit(0)
            note.write_text(str(child))
            os._exit(4)

        with (
            open_reader(url, TransformSpec(fork_and_die)) as reader,
            pytest.raises(RuntimeError, match="exit code 4"),
        ):
            next(reader)
        child = psutil.Process(int(note.read_text()))
        assert child.is_running()
        child.kill()

    def test_a_transform_that_cannot_be_sent(self, url):
        lock = threading.Lock()

        def use(frame):
            with lock:
                return frame

        with (
            open_reader(url, TransformSpec(use)) as reader,
            pytest.raises(TypeError, match=r"cannot be pickled.*reader_pool_type='thread'"),
        ):
            next(reader)

    def test_a_module_that_the_workers_do_not_find(self, url, tmp_path, monkeypatch):
        (tmp_path / "only_here.py").write_text("def change(frame):\n    return frame\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        import only_here

        spec = TransformSpec(only_here.change)
        with open_reader(url, spec) as reader:  # sys.path goes along
            assert len(next(reader).id) == ROWS
        monkeypatch.undo()
        with (
            open_reader(url, spec) as reader,
            pytest.raises(ModuleNotFoundError, match="only_here"),
        ):
            next(reader)
        sys.modules.pop("only_here")

    def test_a_stuck_transform_does_not_hold_up_the_end(self, url, monkeypatch, no_leaks):
        monkeypatch.setattr(threads, "_GRACE_SECONDS", 0.2)

        def stick(frame):
            import time

            if frame["id"][0]:
                time.sleep(300)
            return frame

        with no_leaks():
            with open_reader(url, TransformSpec(stick)) as reader:
                next(reader)
                assert wait_for(children)
            del reader


def run_script(tmp_path, text, *arguments):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(text))
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        cwd=tmp_path,
    )


@pytest.mark.modern
@pytest.mark.difference("process-pool-names")
def test_scripts_without_a_main_guard_with_functions_and_classes_of_main(url, tmp_path):
    process = run_script(
        tmp_path,
        """
        import os, sys, time
        import numpy as np
        from petastorm_bridge import TransformSpec, make_batch_reader

        print("run as", __name__)

        class MyError(Exception):
            pass

        def change(frame):
            if frame["id"][0] == 10:
                raise MyError("from", os.getcwd())
            time.sleep(0)
            return frame.assign(root=np.sqrt(frame["id"]))

        spec = TransformSpec(change, edit_fields=[("root", np.float64, (), False)])
        with make_batch_reader(sys.argv[1], reader_pool_type="process", workers_count=2,
                               transform_spec=spec, shuffle_row_groups=False) as reader:
            try:
                for group in reader:
                    print(group.root.tolist() == np.sqrt(group.id).tolist())
            except MyError as error:
                print(error.args)
        """,
        url,
    )
    output, errors = process.communicate(timeout=120)
    assert errors == ""
    assert output.splitlines() == ["run as __main__", "True", "True", str(("from", str(tmp_path)))]


@pytest.mark.modern
def test_functions_of_main_in_a_process_that_the_program_spawned(url, tmp_path):
    process = run_script(
        tmp_path,
        """
        import multiprocessing, sys
        from petastorm_bridge import TransformSpec, make_batch_reader

        class Doubled:
            def __call__(self, frame):
                return frame.assign(id=frame["id"] * 2)

        def read(url):
            with make_batch_reader(url, reader_pool_type="process", workers_count=1,
                                   transform_spec=TransformSpec(Doubled())) as reader:
                print(sum(int(group.id.sum()) for group in reader), flush=True)

        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=read, args=sys.argv[1:])
            child.start()
            child.join()
        """,
        url,
    )
    output, errors = process.communicate(timeout=120)
    assert output == f"{sum(range(ROWS * GROUPS)) * 2}\n", errors


HELD = """
    import os, sys, time
    from petastorm_bridge import TransformSpec, make_batch_reader

    def wait(frame):
        if frame["id"][0]:
            time.sleep(300)
        return frame

    reader = make_batch_reader(sys.argv[1], reader_pool_type="process", workers_count=2,
                               transform_spec=TransformSpec(wait), shuffle_row_groups=False)
    next(reader)
    print("ready", flush=True)
    {then}
"""


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "code"),
    [("pass", 0), ("time.sleep(300)", -signal.SIGKILL), ("os._exit(5)", 5), ("1/0", 1)],
)
def test_a_program_that_ends_takes_its_workers_along(url, tmp_path, then, code):
    process = run_script(tmp_path, HELD.format(then=then), url)
    try:
        assert process.stdout.readline() == "ready\n"
        workers = []
        if code < 0:
            workers = psutil.Process(process.pid).children()
            assert workers
            process.kill()
        process.communicate(timeout=60)
        assert process.returncode == code
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert alive == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.modern
def test_ctrl_c_raises_in_the_program_alone(url, tmp_path):
    # A signal that comes just before a sleep begins waits for its end.
    sleeping = "for _ in range(3000): time.sleep(0.1)"
    process = run_script(tmp_path, HELD.format(then=sleeping), url)
    try:
        assert process.stdout.readline() == "ready\n"
        parent = psutil.Process(process.pid)
        workers = parent.children()
        for one in [*workers, parent]:  # as a terminal does
            one.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert errors.count("KeyboardInterrupt") == 1
        assert psutil.wait_procs(workers, timeout=20)[1] == []
    finally:
        process.kill()
        process.communicate()


class TestWire:
    @pytest.fixture
    def pipe(self):
        reading, writing = os.pipe()
        yield reading, writing
        os.close(reading)

    def through(self, pipe, message):
        """Send in a thread: a pipe holds little."""
        reading, writing = pipe
        thread = threading.Thread(target=lambda: (send(writing, message), os.close(writing)))
        thread.start()
        try:
            return receive(reading)
        finally:
            thread.join()

    def test_blocks(self, pipe):
        import pandas as pd

        base = np.arange(100_000).view([("a", "<i4"), ("b", "<i4")])
        columns = collections.OrderedDict(
            strided=base["a"],
            matrix=np.arange(6.0).reshape(3, 2),
            empty=np.empty((0, 4), np.int8),
            objects=np.array([None, b"x", 3], object),
            text=pa.array(["a" * 1000, None, "c"] * 100).slice(1, 4),
            categories=pd.Categorical(["x", "y", "x"]),
            dictionary=pa.array(["x", "y", "x", None]).dictionary_encode(),
        )
        block = unpack_block(self.through(pipe, pack_block(Block(columns, 3, True))))
        assert list(block.columns) == list(columns)
        assert (block.num_rows, block.ends_epoch) == (3, True)
        for name in ("strided", "matrix", "empty", "objects"):
            assert block.columns[name].dtype == columns[name].dtype
            np.testing.assert_array_equal(block.columns[name], columns[name])
            assert block.columns[name].flags.writeable
        for name in ("text", "dictionary"):
            assert block.columns[name].equals(columns[name])
        assert block.columns["categories"].tolist() == ["x", "y", "x"]

    def test_a_slice_sends_only_its_rows(self, pipe):
        long = pa.array(["x" * 100] * 10_000)
        packed = pack_block(Block({"s": long.slice(5, 2), "n": np.arange(10_000)[3:5]}, 2))
        assert packed[2].size < 1000
        assert packed[1]["n"].nbytes == 16

    def test_large_messages(self, pipe):
        data = np.random.default_rng(0).integers(0, 255, 5_000_000, np.uint8)
        np.testing.assert_array_equal(self.through(pipe, {"data": data})["data"], data)

    def test_end_of_pipe(self, pipe):
        os.close(pipe[1])
        with pytest.raises(EOFError):
            receive(pipe[0])


def test_cloudpickle_of_spark_is_enough(tmp_path):
    pytest.importorskip("pyspark", reason="holds the copy of cloudpickle")
    code = """
        import sys
        sys.modules["cloudpickle"] = None
        from petastorm_bridge._workers.worker import dumps
        import pickle
        secret = 5
        assert pickle.loads(dumps(lambda: secret))() == 5
        sys.modules["pyspark"] = None
        try:
            dumps(1)
        except ImportError as error:
            print(error)
    """
    output, errors = run_script(tmp_path, code).communicate(timeout=120)
    assert "pip install cloudpickle" in output, errors


def test_workers_import_little():
    code = "import petastorm_bridge._workers.worker, petastorm_bridge.reader._pool, sys; print(sorted(sys.modules))"
    path = str(pathlib.Path(_pool.__file__).parents[2])
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in ("torch", "tensorflow", "pyspark", "streaming", "pandas"):
        assert f"'{name}'" not in found
