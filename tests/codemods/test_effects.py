"""Which expressions may go with what has used them."""

import libcst as cst
import pytest

from petastorm_codemods._meaning.effects import has_no_effect

pytestmark = pytest.mark.modern


@pytest.mark.parametrize(
    "code",
    [
        "rank",
        "hvd.rank()",
        "torch.distributed.get_world_size()",
        'int(os.environ["RANK"])',
        'int(os.environ.get("WORLD_SIZE", 1))',
        "(hvd.rank(), hvd.size())",
        "not self.context",
        "self.context is not None",
        "sizes[0]",
        "{'rows': 1, **more}",
        "dict(rows=1)",
        "dist.get_rank() if dist.is_initialized() else 0",
    ],
)
def test_what_only_asks(code):
    assert has_no_effect(cst.parse_expression(code))


@pytest.mark.parametrize(
    "code",
    [
        "connect()",
        "connect().rank()",
        "workers[start()].rank()",
        "dist.get_rank(join(group))",
        "int(read())",
        "(hvd.rank(), join())",
        "not stop()",
        "stop() is None",
        "sizes[pop()]",
        "[pop()]",
        "rank + step()",
        "(found := find())",
        "{'rows': count()}",
        "dict(rows=count())",
        "dist.get_rank() if join() else 0",
    ],
)
def test_what_may_do_more(code):
    assert not has_no_effect(cst.parse_expression(code))
