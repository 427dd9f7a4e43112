"""What the guide gives to copy, on a repository that follows it: red before, green after, and again for streaming."""

import json

import pytest
from guide import ROOT, blocks, bridge, named

yaml = pytest.importorskip("yaml", reason="comes with the development tools")

pytestmark = [pytest.mark.modern, pytest.mark.slow]

PAGE = "migration_guide/many-repositories.md"
STEPS = named(PAGE)
FILES = {
    "train.py": """
from petastorm.spark import SparkDatasetConverter, make_spark_converter

spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, "file:///dbfs/tmp/cache")
converter = make_spark_converter(df)
with converter.make_torch_dataloader(batch_size=8, num_epochs=1) as loader:
    train(loader)
""",
    "requirements.txt": "petastorm==0.12.1\ntorch\n",
}


def recipes():
    """The commands of each recipe that judge a repository: what gets the package and talks to a service is left out."""
    hooks, action, pipeline = (
        yaml.safe_load(code) for _, language, code in blocks(PAGE) if language == "yaml"
    )
    elsewhere = ("pip install", "gh ")
    steps = [step.get("run", "") for step in action["jobs"]["codemod"]["steps"]]
    published = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    found = {
        "pre-commit": [hooks["repos"][0]["hooks"][0]["entry"]],
        "published": [hook["entry"] for hook in published if hook["id"].endswith("-check")],
        "GitHub": [step for step in steps if step and not step.startswith(elsewhere)],
        "GitLab": [
            line for line in pipeline["petastorm"]["script"] if not line.startswith(elsewhere)
        ],
    }
    assert {name: len(commands) for name, commands in found.items()} == {
        "pre-commit": 1,
        "published": 1,
        "GitHub": 3,
        "GitLab": 1,
    }
    return found


def judge(folder, code):
    """Runs every recipe; each has this exit code, in its last step."""
    for name, (*before, last) in recipes().items():
        for command in before:
            bridge(command, folder, codes=(0,) if code in {0, 1} else (1,))
        said = bridge(last, folder, codes=(code,))
        assert code != 2 or "needs a destination" in said, name
    reports = ("codemod.sarif", "comment.md", "gl-code-quality-report.json")
    for report in reports:
        assert (folder / report).exists() == (code != 2)
        (folder / report).unlink(missing_ok=True)


def test_recipes_are_red_before_the_guide_and_green_after_it(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    bridge("git init -q -b main && git add .", tmp_path)
    judge(tmp_path, 2)  # nobody has said where the code goes

    (tmp_path / "pyproject.toml").write_text(STEPS["decide.toml"])
    judge(tmp_path, 1)
    assert "Next: petastorm-bridge codemod .\n" in bridge("petastorm-bridge doctor", tmp_path)
    bridge(STEPS["move"], tmp_path)
    assert "from petastorm_bridge.spark import" in (tmp_path / "train.py").read_text()
    judge(tmp_path, 0)
    assert "Next:" not in bridge("petastorm-bridge doctor", tmp_path)

    (tmp_path / "pyproject.toml").write_text(STEPS["second.toml"])
    judge(tmp_path, 1)
    bridge(STEPS["second"], tmp_path)
    assert "StreamingDataLoader(" in (tmp_path / "train.py").read_text()
    judge(tmp_path, 0)

    (tmp_path / "new.py").write_text("from petastorm import make_reader\n")  # it comes back
    judge(tmp_path, 1)


def test_the_hook_that_rewrites_does_what_the_guide_does(tmp_path):
    published = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (entry,) = (hook["entry"] for hook in published if not hook["id"].endswith("-check"))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    bridge(entry, tmp_path, codes=(2,), said="needs a destination")
    (tmp_path / "pyproject.toml").write_text(STEPS["decide.toml"])
    bridge(entry, tmp_path)
    report = bridge("petastorm-bridge codemod . --report json", tmp_path)
    assert json.loads(report)["counts"]["sites rewritten"] == 0
