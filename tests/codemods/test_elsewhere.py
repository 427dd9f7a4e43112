"""What other files do with a file's functions, attributes and dictionaries decides what its loaders become."""

import time

import pytest

from petastorm_codemods._meaning.elsewhere import with_elsewhere
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Rewritten, Unchanged
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import write_atomically

HEAD = "from petastorm.spark import make_spark_converter\nconv = make_spark_converter(df)\n"
FUNCTION = (
    HEAD
    + """\
def epoch(rank, size, epochs=1):
    with conv.make_torch_dataloader(num_epochs=1, cur_shard=rank, shard_count=size) as loader:
        fit(loader)
epoch(0, 1)
"""
)
CLASS = (
    HEAD
    + """\
class Data:
    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size
    def batches(self):
        with conv.make_torch_dataloader(num_epochs=1, cur_shard=self.rank, shard_count=self.size) as loader:
            yield from loader
Data(0, 1)
"""
)
ATTRIBUTE = (
    HEAD
    + """\
class Data:
    def __init__(self):
        self.options = {"batch_size": 8, "num_epochs": 1}
    def batches(self):
        with conv.make_torch_dataloader(**self.options) as loader:
            yield from loader
"""
)
NAME = (
    HEAD
    + """\
OPTIONS = {"batch_size": 8, "num_epochs": 1}
with conv.make_torch_dataloader(**OPTIONS) as loader:
    fit(loader)
"""
)
EPOCHS = (
    HEAD
    + """\
class Data:
    def __init__(self):
        self.epochs = None
    def batches(self):
        with conv.make_torch_dataloader(num_epochs=self.epochs) as loader:
            yield from loader
"""
)
SETTINGS = "OPTIONS = dict(batch_size=8, num_epochs=1)\n"
IMPORTED = f"from settings import OPTIONS\n{HEAD}" + NAME.partition("1}\n")[2]


@pytest.fixture
def rewritten(tmp_path):
    """A function that returns a module ``ours`` as the codemod writes it, which is beside other files."""

    def rewritten(text, **others):
        for name, content in {"ours": text, **others}.items():
            (tmp_path / f"{name}.py").write_text(content)
        outcomes = run([str(tmp_path)], Settings()).outcomes
        (found,) = (each for each in outcomes if each.path.endswith("ours.py"))
        assert isinstance(found, Rewritten)
        return found.after.decode()

    return rewritten


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        (FUNCTION, "from ours import epoch\nepoch(hvd.rank(), hvd.size())\n"),
        (FUNCTION, "import ours\nours.epoch(hvd.rank(), hvd.size())\n"),
        (FUNCTION, "from ours import *\nepoch(hvd.rank(), hvd.size())\n"),
        (FUNCTION, "from .ours import epoch\nHorovodRunner(np=2).run(epoch, rank=3, size=4)\n"),
        (CLASS, "from ours import Data\nData(hvd.rank(), hvd.size())\n"),
        (CLASS, "from package import Data\nclass Mine(Data):\n    pass\n"),
        (CLASS, "def start(data):\n    data.rank, data.size = hvd.rank(), hvd.size()\n"),
        (CLASS, "def start(data):\n    setattr(data, 'rank', hvd.rank())\n"),
        (ATTRIBUTE, "class Mine(Data):\n    options = {'num_epochs': 3}\n"),
        (ATTRIBUTE, "def start(data):\n    data.options['num_epochs'] = 3\n"),
        (ATTRIBUTE, "def start(data):\n    data.options.update(num_epochs=3)\n"),
        (ATTRIBUTE, "def start(data):\n    change(data.options)\n"),
        (ATTRIBUTE, "monkeypatch.setattr('ours.Data.options', {})\n"),
        (NAME, "import ours\nours.OPTIONS['num_epochs'] = 3\n"),
        (NAME, "from ours import OPTIONS\nOPTIONS |= {'num_epochs': 3}\n"),
        (NAME, "from package import OPTIONS\nOPTIONS['num_epochs'] = 3\n"),
        (NAME, "from ours import OPTIONS as mine\nmine['num_epochs'] = 3\n"),
        (NAME, "from ours import *\nOPTIONS.pop('num_epochs')\n"),
        (NAME, "import ours\nfor name in given:\n    setattr(ours, name, given[name])\n"),
        (NAME, "from ours import OPTIONS\nthis does not parse\n"),
    ],
)
def test_what_others_may_give_or_change_stays(rewritten, ours, other):
    assert "make_torch_dataloader" not in rewritten(ours)
    assert "make_torch_dataloader" in rewritten(ours, other=other)


@pytest.mark.parametrize(
    ("ours", "other"),
    [
        (FUNCTION, "def epoch(number):\n    pass\nepoch(3)\n"),
        (FUNCTION, "import torch\ntorch.epoch()\n"),
        (f"from library import ours as theirs\n{FUNCTION}", ""),
        (CLASS, "print(data.rank == data.size)\n"),
        (ATTRIBUTE, "print(data.options['num_epochs'], len(data.options))\n"),
        (NAME, "OPTIONS = {}\nOPTIONS['num_epochs'] = 3\n"),
        (NAME, "from ours import OPTIONS\nprint({**OPTIONS, 'num_epochs': 3})\n"),
        (NAME, "from ours import OPTIONS\nMORE = OPTIONS | {'num_epochs': 3}\n"),
        (NAME, "from ours import OPTIONS\nsteps = OPTIONS.get('batch_size')\n"),
    ],
)
def test_what_others_only_read_is_followed(rewritten, ours, other):
    assert "make_torch_dataloader" not in rewritten(ours, other=other)


WHOLE = (
    HEAD
    + """\
def batches():
    with conv.make_torch_dataloader(num_epochs=1) as loader:
        yield from loader
def evaluate(model):
    return [model(batch) for batch in batches()]
def fit(model):
    return [model.fit(batch) for batch in batches()]
"""
)


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        ("from ours import evaluate\ndist.init_process_group('gloo')\nevaluate(model)\n", True),
        ("import ours\nTorchDistributor(num_processes=2).run(ours.evaluate, model)\n", True),
        ("from ours import *\nopen(cur_shard=rank, shard_count=size)\nevaluate(model)\n", True),
        (
            "import os\nfrom ours import evaluate\nif os.environ['RANK'] == '0':\n    evaluate(model)\n",
            True,
        ),
        ("from ours import evaluate\naccelerator = Accelerator()\nevaluate(model)\n", True),
        ("from ours import evaluate\nTrainer(devices=2)\nevaluate(model)\n", True),
        ("from ours import evaluate\nevaluate(DistributedDataParallel(model))\n", True),
        ("from ours import evaluate\ndist.all_reduce(evaluate(model))\n", True),
        ("from ours import evaluate\nif trainer.is_global_zero:\n    evaluate(model)\n", True),
        (
            "from ours import evaluate\nif context.get_world_rank() == 0:\n    evaluate(model)\n",
            True,
        ),
        ("from ours import evaluate\nTrainer(strategy=DDPStrategy())\nevaluate(model)\n", True),
        (
            "from ours import evaluate\nTrainer(accelerator='gpu', devices=1)\nevaluate(model)\n",
            False,
        ),
        ("from ours import evaluate\nevaluate(model)\n", False),
        (
            "from ours import evaluate\nevaluate(spark.sql('SELECT RANK() OVER (ORDER BY x)'))\n",
            False,
        ),
        ("from ours import conv\nconv.make_torch_dataloader(cur_shard=0, shard_count=2)\n", False),
        ("import horovod.torch as hvd\nfrom ours import batches\nf(cur_shard=hvd.rank())\n", False),
        ("from theirs import evaluate\ndist.init_process_group('gloo')\nevaluate(model)\n", False),
    ],
)
def test_what_a_file_of_ranks_uses_reads_all_on_each_of_them(rewritten, other, stays):
    after = rewritten(WHOLE, other=other)
    assert ("make_torch_dataloader" in after) == stays
    assert ("each rank that gets here reads all of it" in after) == stays


@pytest.mark.parametrize(
    ("passing", "stays"),
    [
        ("from .ours import evaluate\n", True),
        ("from ours import *\n", True),
        ("from ours import fit\n", False),
        ("import ours\ndef evaluate(model):\n    print(model)\n", False),
    ],
)
def test_it_may_come_by_way_of_modules_that_pass_it_on(rewritten, passing, stays):
    other = "import names\ndist.init_process_group('gloo')\nnames.evaluate(model)\n"
    after = rewritten(WHOLE, api=passing, names="from api import evaluate\n", other=other)
    assert ("each rank that gets here reads all of it" in after) == stays


@pytest.mark.parametrize(
    ("other", "stays"),
    [
        ("import ours\ndist.init_process_group('gloo')\nbuild(name)\n", True),
        ("import ours\nbuild(name)\n", False),
        ("dist.init_process_group('gloo')\nbuild(name)\n", False),
    ],
)
def test_a_registry_may_give_it_to_a_file_of_ranks(rewritten, other, stays):
    ours = (
        HEAD
        + """\
@LOADERS.register("whole")
@contextmanager
def whole():
    with conv.make_torch_dataloader(num_epochs=1) as loader:
        yield loader
"""
    )
    after = rewritten(ours, other=other)
    assert ("each rank that gets here reads all of it" in after) == stays


OF_A_GROUP = "import torch.distributed as dist\n" + FUNCTION.replace(
    "epoch(0, 1)", "epoch(dist.get_rank(), dist.get_world_size())"
)
OF_VARIABLES = "import os\n" + FUNCTION.replace(
    "epoch(0, 1)", "epoch(os.environ['RANK'], os.environ['WORLD_SIZE'])"
)
OF_LIGHTNING = FUNCTION.replace("epoch(0, 1)", "epoch(trainer.global_rank, trainer.world_size)")
SET_UP = "def setup(rank, size):\n    {}\n"
GIVEN = "dist.init_process_group('gloo', timeout=timedelta(hours=2), rank=rank, world_size=size)"
ASKED = "dist.init_process_group('gloo', timeout=timedelta(hours=2))\n    rank = dist.get_rank()"
READ = "dist.init_process_group('gloo', rank=int(os.environ['RANK']), world_size=size)"
SET = "os.environ['RANK'] = str(rank)"


@pytest.mark.parametrize("ours", [OF_A_GROUP, OF_VARIABLES, OF_LIGHTNING])
@pytest.mark.parametrize(
    ("setup", "start", "stays"),
    [
        ("", "import ours\nimport torch.multiprocessing as mp\nmp.spawn(work, nprocs=2)\n", True),
        ("", "import ours\nfrom torch.multiprocessing import spawn\nspawn(work, nprocs=2)\n", True),
        ("", "import ours\nTrainer(devices=2, strategy='ddp_spawn').fit(model)\n", True),
        ("", "import ours\nTrainer(devices=2, strategy='ddp').fit(model)\n", False),
        ("", "import torch.multiprocessing as mp\nmp.spawn(work, nprocs=2)\n", False),
        (GIVEN, "import ours, setup\nsetup.setup(place, 2)\n", True),
        (READ, "import ours, setup\nsetup.setup(place, 2)\n", False),
        (ASKED, "import ours, setup\nsetup.setup(place, 2)\n", False),
        (GIVEN, "import setup\nsetup.setup(place, 2)\n", False),
        (SET, "import ours, setup\nsetup.setup(place, 2)\n", True),
        (f"{SET}; os.environ['LOCAL_WORLD_SIZE'] = str(size)", "import ours, setup\n", False),
        ("os.environ['RANK'] = '0'", "import ours, setup\n", False),
    ],
)
def test_ranks_that_a_program_numbers_are_not_streamings(rewritten, ours, setup, start, stays):
    after = rewritten(ours, setup=SET_UP.format(setup or "pass"), start=start)
    assert ("streaming takes ranks from its launcher" in after) == stays
    assert ("make_torch_dataloader" in after) == stays


def test_what_stays_names_the_class_of_what_it_is_given(rewritten):
    ours = """\
from petastorm.spark import SparkDatasetConverter
def evaluate(conv: SparkDatasetConverter):
    with conv.make_torch_dataloader(num_epochs=1) as loader:
        return score(loader)
"""
    data = f"{HEAD}with conv.make_torch_dataloader(num_epochs=1) as loader:\n    fit(loader)\n"
    other = "import data, ours\ndist.init_process_group('gloo')\nours.evaluate(data.conv)\n"
    after = rewritten(ours, data=data, other=other)
    assert "make_spark_converter(conv.cache_dir_url).make_torch_dataloader" in after
    assert "def evaluate(conv: MdsDirectory):" in after


def test_what_stays_for_a_file_of_ranks_stays_when_that_has_gone_native(tmp_path):
    (tmp_path / "ours.py").write_text(WHOLE)
    (tmp_path / "other.py").write_text(
        """\
from ours import conv, evaluate
def train(rank, size):
    with conv.make_torch_dataloader(num_epochs=1, cur_shard=rank, shard_count=size) as loader:
        fit(loader)
    evaluate(model)
train(trainer.global_rank, trainer.world_size)
"""
    )
    for outcome in run([str(tmp_path)], Settings()).outcomes:
        assert isinstance(outcome, Rewritten)
        assert (b"make_torch_dataloader" in outcome.after) == outcome.path.endswith("ours.py")
        write_atomically(outcome.path, outcome.after)
    assert all(isinstance(each, Unchanged) for each in run([str(tmp_path)], Settings()).outcomes)


@pytest.mark.parametrize("other", ["", "data.epochs = 3\n"])
def test_a_number_that_has_a_name_is_asked_when_the_program_runs(rewritten, other):
    assert "drop_last=self.epochs is None" in rewritten(EPOCHS, other=other)


@pytest.mark.parametrize(
    "ours",
    [
        IMPORTED,
        IMPORTED.replace("from settings import OPTIONS", "import settings").replace(
            "**", "**settings."
        ),
        IMPORTED.replace("from s", "from .s"),
    ],
)
def test_a_dictionary_of_another_module_stays_there(rewritten, ours):
    after = rewritten(ours, settings=SETTINGS)
    assert "its arguments are in a dictionary" in after
    assert "make_torch_dataloader(**" in after


@pytest.mark.parametrize(
    "other",
    [
        "from ours import make_reader\n",
        "from ours import *\nmake_reader(url)\n",
        "import ours\nours.make_reader(url)\n",
        "from package import make_reader\n",
    ],
)
def test_an_import_that_only_others_use_stays(rewritten, other):
    text = f"from petastorm import make_reader\n{NAME}"
    assert "make_reader" not in rewritten(text)
    assert "from petastorm_bridge import make_reader\n" in rewritten(text, other=other)


def test_files_around_those_of_a_run_count_as_well(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "ours.py").write_text(FUNCTION)
    (tmp_path / "other.py").write_text("from ours import epoch\nepoch(hvd.rank(), hvd.size())\n")
    (found,) = run([str(tmp_path / "ours.py")], Settings()).outcomes
    assert b"make_torch_dataloader" in found.after


def test_files_are_read_only_where_any_opens_loaders():
    read = {"a.py": b"import b\n", "b.py": b"OPTIONS = {}\n"}
    assert with_elsewhere(Project(), read, read.__getitem__) == with_elsewhere(
        Project(), (), read.__getitem__
    )


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["x.a,", "x.a:1,", "setattr(x, y) ", "setattr(x, 'y z "])
def test_a_long_line_costs_in_proportion_to_its_length(unit):
    def seconds(length):
        texts = {"a.py": f"{NAME}\n# {unit * (length // len(unit))}\n".encode()}
        times = []
        for _ in range(3):
            start = time.thread_time()
            with_elsewhere(Project(), texts, texts.__getitem__)
            times.append(time.thread_time() - start)
        return min(times)

    assert seconds(80_000) < 8 * seconds(20_000) + 0.05


ASKING = (
    HEAD
    + """\
import distributed
from distributed import number_of_ranks
def fit():
    with conv.make_torch_dataloader(
        num_epochs=1, cur_shard=distributed.rank(), shard_count=number_of_ranks()
    ) as loader:
        train(loader)
"""
)
TORCH = """\
import torch.distributed as dist
def rank():
    if not dist.is_initialized():
        return 0
    return dist.get_rank()
def number_of_ranks():
    return dist.get_world_size() if dist.is_initialized() else 1
"""
VARIABLES = """\
import os
def rank():
    return int(os.environ.get("RANK", 0))
def number_of_ranks():
    return int(os.environ.get("WORLD_SIZE", 1))
"""


@pytest.mark.parametrize(
    ("others", "native"),
    [
        ({"distributed": TORCH}, True),
        ({"distributed": VARIABLES}, True),
        ({"distributed": VARIABLES.replace('"RANK"', '"LOCAL_RANK"')}, False),
        ({"distributed": VARIABLES.replace('get("RANK", 0))', 'get("RANK", 0)) + 1')}, False),
        ({"distributed": VARIABLES.replace("def rank(", "def any_rank(")}, False),
        ({"distributed": TORCH.replace("torch.distributed", "horovod.torch")}, False),
        ({"distributed": TORCH + "this does not parse\n"}, False),
        ({"distributed": TORCH + "x = " + "-" * 5000 + "1\n"}, False),  # nor this, in practice
        ({"distributed": "# get_rank\nfrom ours import rank, number_of_ranks\n"}, False),
        ({"others": TORCH}, False),
        ({"distributed": TORCH, "start": "import ours\nmp.spawn(ours.fit, nprocs=2)\n"}, False),
    ],
)
def test_functions_of_other_files_that_ask_for_ranks_are_followed(rewritten, others, native):
    assert ("make_torch_dataloader" not in rewritten(ASKING, **others)) == native


def test_functions_of_libraries_are_not_taken_for_those_of_other_files(rewritten):
    ours = ASKING.replace("distributed", "library.distributed", 2)
    assert "make_torch_dataloader" in rewritten(
        ours.replace("=distributed", "=library.distributed"), distributed=TORCH
    )
