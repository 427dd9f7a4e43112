"""The cost of looking into a file grows as the file does, whatever its shape."""

import json
import os
from types import SimpleNamespace

import pytest
from growth import assert_grows_linearly

from petastorm_codemods import _processes
from petastorm_codemods._engine import process
from petastorm_codemods._meaning.elsewhere import with_elsewhere
from petastorm_codemods._meaning.other_files import Project, modules_named
from petastorm_codemods._model import Converted, Destination, Failed, Success, Target
from petastorm_codemods._project.evidence import Code, Lists
from petastorm_codemods._project.files import gather
from petastorm_codemods._project.vendor import Homes
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

pytestmark = [pytest.mark.modern, pytest.mark.slow]

HEAD = "from petastorm.spark import make_spark_converter\nv0 = w0 = c = make_spark_converter(df)\n"


def lines(count, text):
    """Repeat text with its number for n, and the number after it for m."""
    return "".join(
        text.replace("{n}", str(number)).replace("{m}", str(number + 1)) for number in range(count)
    )


def ask(name, arguments="num_epochs=1"):
    return f"{name}.make_torch_dataloader({arguments})\n"


SHAPES = {
    "functions that pools of threads run": lambda count: (
        "from concurrent.futures import ThreadPoolExecutor\n"
        + lines(
            count,
            "def f{n}():\n    with c.make_torch_dataloader(num_epochs=1) as loader: print(loader)\n"
            "with ThreadPoolExecutor(2) as pool:\n    pool.submit(f{n})\n",
        )
    ),
    "threads whose functions call one another": lambda count: (
        "import threading\n"
        + lines(
            count,
            "def f{n}():\n    with c.make_torch_dataloader(num_epochs=1) as loader: print(loader)\n"
            "    f{m}()\nthreading.Thread(target=f{n}).start()\n",
        )
    ),
    "both arms of an if": lambda count: (
        lines(count, "if flag:\n    v{m} = v{n}\nelse:\n    v{m} = (v{n} or v{n})\n")
        + ask(f"v{count}")
    ),
    "try, else and finally": lambda count: (
        lines(
            count,
            "try:\n    v{m} = v{n}\nexcept E:\n    v{m} = [v{n}]\nelse:\n    v{m} = (v{n}, v{n})\n",
        )
        + ask(f"v{count}")
    ),
    "names that go in a circle": lambda count: (
        "while flag:\n"
        + lines(count, "    if flag:\n        v{m} = v{n}\n    else:\n        v{m} = w{n}\n")
        + lines(count, "    if flag:\n        w{m} = w{n}\n    else:\n        w{m} = v{n}\n")
        + f"    v0 = w{count}\n    w0 = v{count}\n    "
        + ask(f"v{count}")
    ),
    "functions that call each other": lambda count: (
        lines(count, "def f{n}(x):\n    if x: return f{m}(x)\n    return f{m}(f{m}(x))\n")
        + f"def f{count}(x): return f0(x) or c\n"
        + ask("f0(c)")
    ),
    "a chain of assignments": lambda count: lines(count, "v{m} = v{n}\n") + ask(f"v{count}"),
    "one name, many values": lambda count: lines(
        count, "c = make_spark_converter(df)\n" + ask("c")
    ),
    "one name, many arms": lambda count: (
        lines(count, "if flag:\n    c = make_spark_converter(df)\n")
        + lines(count, "def f{n}():\n    " + ask("c"))
    ),
    "call sites": lambda count: lines(count, "v{m} = make_spark_converter(df)\n" + ask("v{m}")),
    "call sites in functions": lambda count: lines(count, "def f{n}():\n    " + ask("c")),
    "call sites in methods": lambda count: (
        "class A:\n    def __init__(self): self.c = make_spark_converter(df)\n"
        + lines(count, "    def f{n}(self, x):\n        " + ask("self.c"))
    ),
    "classes with the same field": lambda count: lines(
        count,
        "class A{n}:\n    def __init__(self): self.c = make_spark_converter(df)\n"
        "    def f(self): " + ask("self.c"),
    ),
    "calls of the same method": lambda count: lines(
        count, "class A{n}:\n    def f(self): return make_spark_converter(df)\n" + ask("any.f()")
    ),
    "calls of a function with a parameter": lambda count: (
        "def f(x):\n" + lines(count, "    " + ask("x")) + lines(count, "f(c)\n")
    ),
    "epochs in a variable that is set again": lambda count: lines(
        count, "epochs = {n}\n" + ask("c", "num_epochs=epochs")
    ),
    "epochs in fields of objects": lambda count: lines(
        count,
        "class A{n}:\n    def __init__(self, epochs): self.epochs = epochs\n"
        "    def f(self): " + ask("c", "num_epochs=self.epochs") + "A{n}({n})\n",
    ),
    "a dictionary for each call": lambda count: lines(
        count,
        "o{n} = {}\no{n}['num_epochs'] = 1\no{n}.update(batch_size=8)\n" + ask("c", "**o{n}"),
    ),
    "one dictionary for all calls": lambda count: (
        "o = {'num_epochs': 1}\n" + lines(count, ask("c", "**o"))
    ),
    "one dictionary that is made again": lambda count: lines(
        count, "o = {'num_epochs': 1}\n" + ask("c", "**o")
    ),
    "converters without a name": lambda count: lines(
        count, f"with {ask('make_spark_converter(df)').strip()} as loader: fit(loader)\n"
    ),
    "ranks that functions are given": lambda count: (
        "import os\nrank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        + lines(
            count,
            "def f{n}(rank, size):\n    "
            + ask("c", "cur_shard=rank, shard_count=size")
            + "f{n}(rank, size)\n",
        )
    ),
    "imports": lambda count: lines(count, "import m{n}, petastorm.spark as p{n}\n") + ask("c"),
    "imports in functions": lambda count: lines(
        count, "def f{n}():\n    from petastorm import TransformSpec\n    TransformSpec()\n"
    ),
    "things that stay": lambda count: lines(count, "from petastorm.local_disk_cache import C{n}\n"),
    "attributes": lambda count: lines(count, "a.b{n}.c = x.y\n") + ask("a.b0.c"),
    "keyword arguments": lambda count: (
        "c.make_torch_dataloader(\n" + lines(count, "    a{n}=1,\n") + ")\n"
    ),
    "strings": lambda count: lines(count, 'mock("petastorm.spark.make_spark_converter")\n'),
    "statements of other kinds": lambda count: lines(count, "x{n} = [f(y) for y in z if y]\n"),
}


def operation_on(path, text, destination=Destination.STREAMING):
    settings = Settings(destination, project=Project(converters=True))

    def operation():
        outcome = process(path, text.encode(), settings)
        assert not isinstance(outcome, Failed), outcome

    return operation


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_calls_in_code_of_any_shape(shape):
    assert_grows_linearly(lambda count: operation_on("x.py", HEAD + SHAPES[shape](count)), 16)


@pytest.mark.parametrize(
    "shape", ["imports", "imports in functions", "strings", "things that stay"]
)
def test_imports_alone(shape):
    def prepare(count):
        return operation_on("x.py", SHAPES[shape](count), Destination.BRIDGE)

    assert_grows_linearly(prepare, 40)


CONVERTED = {
    "readers of one name": """with make_reader("u://d") as reader:
    for row in reader:
        print(row.x, f"{row.y}")
""",
    "loaders of one name": """with DataLoader(make_reader("u://d"), batch_size=8) as loader:
    for batch in loader:
        print(batch)
loader = DataLoader(make_reader("u://d"))
""",
}


@pytest.mark.parametrize("shape", sorted(CONVERTED))
def test_readers_of_converted_datasets(shape):
    target = Target(converted=(Converted("u://d", "/d"),))
    head = "from petastorm import make_reader\nfrom petastorm.pytorch import DataLoader\n"

    def prepare(count):
        text = (head + CONVERTED[shape] * count).encode()
        outcome = process("x.py", text, Settings(target=target))
        assert isinstance(outcome, Success), outcome
        return lambda: process("x.py", text, Settings(target=target))

    assert_grows_linearly(prepare, 16)


def nested(depth):
    """What a figure looks like in JSON: lists in objects in lists."""
    value = {"x": [1.5] * depth}
    for _ in range(depth):
        value = {"children": [value], "name": "a"}
    return value


NOTEBOOKS = {
    "cells": lambda count: [{"source": ["import petastorm.spark\n", "x = 1"]}] * count,
    "lines": lambda count: [{"source": ["x = 1\n"] * count + ["import petastorm.spark"]}],
    "outputs": lambda count: [{"source": "1", "outputs": [{"data": [{"y": 1}] * count}]}],
    "depth of an output": lambda count: [{"source": "1", "outputs": [nested(count)]}],
}


@pytest.mark.parametrize("shape", sorted(NOTEBOOKS))
def test_notebooks(shape):
    def prepare(count):
        cells = [{"cell_type": "code", **cell} for cell in NOTEBOOKS[shape](count)]
        cells.append({"cell_type": "code", "source": "import petastorm.spark"})
        return operation_on("n.ipynb", json.dumps({"cells": cells}), Destination.BRIDGE)

    assert_grows_linearly(prepare, 40)


def test_files(tmp_path):
    def prepare(count):
        folder = tmp_path / str(count)
        folder.mkdir(exist_ok=True)
        for number in range(count):
            text = f"from m{number + 1} import make_spark_converter\n{HEAD}{ask('c')}"
            (folder / f"m{number}.py").write_text(text)
        return lambda: run([str(folder)], Settings())

    assert_grows_linearly(prepare, 8)


def test_modules_of_one_name_that_each_folder_has():
    opening = "OPTIONS = dict(num_epochs=1)\ndef load(c):\n    with c.make_torch_dataloader(**OPTIONS): pass\n"

    def prepare(count):
        texts = {f"p{number}/data.py": opening.encode() for number in range(count)}
        texts |= {f"p{number}/train.py": b"from data import load\n" for number in range(count)}
        return lambda: with_elsewhere(Project(), texts, texts.__getitem__)

    assert_grows_linearly(prepare, 200, limit=4.5)


def test_modules_that_import_one_another_on_ranks():
    opening = "@register\ndef load{0}(c):\n    return c.make_torch_dataloader()\n"

    def prepare(count):
        texts = {
            f"m{number}.py": f"import m{number + 1}\n{opening.format(number)}".encode()
            for number in range(count)
        }
        texts["go.py"] = (
            b"import torch.multiprocessing as mp\nimport m0\nmp.spawn(m0.load0, cur_shard)\n"
        )
        return lambda: with_elsewhere(Project(), texts, texts.__getitem__)

    assert_grows_linearly(prepare, 200, limit=4.5)


def test_an_own_package_of_petastorms_name(tmp_path):
    def prepare(count):
        folder = tmp_path / str(count) / "petastorm"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
        for number in range(count):
            (folder / f"m{number}.py").write_text("import petastorm.x\n")
        return lambda: gather([str(folder.parent)], (), Destination.BRIDGE)

    assert_grows_linearly(prepare, 20)


def test_lists_of_a_repository_without_programs(tmp_path):
    def prepare(count):
        folder = tmp_path / str(count)
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (folder / f"s{number}").mkdir(exist_ok=True)
            (folder / f"s{number}" / "requirements.txt").write_text("petastorm\n")
        return lambda: run([str(folder)], Settings(Destination.BRIDGE))

    assert_grows_linearly(prepare, 8)


def test_lists_for_programs_that_import_nothing_of_it():
    def prepare(count):
        texts = {f"s{number}/train.py": b"import numpy\n" for number in range(count)}
        texts |= {f"lib/m{number}.py": b"import petastorm_bridge\n" for number in range(count)}
        files = [(f"s{number}/requirements.txt", b"petastorm\n") for number in range(count)]

        def decide():
            lists = Lists(Code(texts, texts), files, lambda _: Code((), {}))
            assert all(list(lists.outcome(*file, lift=False)) for file in files)

        return decide

    assert_grows_linearly(prepare, 40)


def test_homes_of_the_support_module_for_tests():
    sources = b"from petastorm.spark import make_spark_converter\n"

    def prepare(count):
        names = [f"s{n}/{name}.py" for n in range(count) for name in ("train", "test_train")]
        homes = Homes([(name, sources) for name in names], lambda _: os.getcwd(), ())
        return lambda: [homes.home(name) for name in names]

    assert_grows_linearly(prepare, 40)


def test_what_is_known_of_a_project_is_sent_once_to_each_process():
    sent = []
    worker = _processes._Worker()
    worker.connection.close()
    worker.connection = SimpleNamespace(send=sent.append, close=lambda: None)
    project = Project(modules=frozenset("abc"))
    for module in ("a.mds_support", "b.mds_support"):
        settings = Settings(project=project, target=Target(module=module))
        worker.begin("x.py", b"", settings, 1.0)
    worker.close()
    assert [message[3] for message in sent] == [project, None]
    assert [message[2].target.module for message in sent] == ["a.mds_support", "b.mds_support"]
    assert not any(message[2].project.modules for message in sent)


def test_a_file_costs_the_same_in_a_repository_of_any_size():
    def prepare(count):
        modules = frozenset(f"m{number}" for number in range(count))
        names = frozenset((module, "make_spark_converter") for module in modules)
        sets = dict.fromkeys(("makers", "borrowers", "joined"), modules)
        sets |= dict.fromkeys(("importers", "reexported", "mentioners"), names)
        settings = Settings(project=Project(converters=True, **sets))
        text = f"from m0 import *\n{HEAD}{ask('c')}".encode()
        return lambda: process("x.py", text, settings)

    assert_grows_linearly(prepare, 1000, limit=1.1)


def test_brackets_of_imports_that_are_never_closed():
    """Each line costs what it cost before, where looking for the end each time would take an hour."""
    text = b"from a import (\n" * 500_000
    assert modules_named(text) == {"a"}


def test_converters_are_found_at_the_end_of_any_chain():
    for shape in ("a chain of assignments", "names that go in a circle", "both arms of an if"):
        text = HEAD + SHAPES[shape](100)
        outcome = process("x.py", text.encode(), Settings())
        assert isinstance(outcome, Success), outcome
        assert b"make_torch_dataloader" not in outcome.after
