"""Every hint of `ingest` that names an option, a field or a command is followed on the input that caused it:
that ends with 0, or with another hint, never the same one."""

import ast
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars
import pytest
import torch

from diagevo.ingest import json_lines
from tests.cli.program import invoke

INGEST = Path(json_lines.__file__).parent
FILL = "FIELD|COLUMN|KEY|METRIC,FILTER|METRIC"
DEPTH = 5
"""Hints that may follow one another; each step of a path that a hint names is one."""
GOOD: dict[str, Any] = {"prompt": "2 + 2?", "response": "4", "reward": 1}
BAD = GOOD | {"response": "5", "reward": 0}
SEEN: set[str] = set()
PLAYED: set[str] = set()
"""Cases of this process; another may have taken some."""
"""Hints that were followed."""


@dataclass
class Case:
    """Rows in a file, or whoever writes the files into the folder, and the words before --run."""

    rows: list[Any] | Callable[[Path], object]
    words: list[str] = field(default_factory=list)
    format: str = "jsonl"
    name: str = "a.jsonl"
    """Of the file; "" names the folder."""
    before: list[str] | None = None
    """Words of an ingest of the same run that went before."""


def rows(**more: list[Any]) -> list[dict[str, Any]]:
    """A pass and a failure with further fields."""
    return [GOOD | {k: v[0] for k, v in more.items()}, BAD | {k: v[-1] for k, v in more.items()}]


def table(name: str, encoding: str = "utf-8", *words: str) -> Case:
    text = "prompt,response,reward\né?,a,1\né?,b,0\n"
    return Case(lambda file: file.write_bytes(text.encode(encoding)), list(words), name=name)


def verl(*words: str, **more: Any) -> Case:
    found = [{"input": "2 + 2?", "output": f"{n}", "score": n, "acc": n, "step": 1} | more for n in range(2)]
    return Case(found, list(words), "verl", "1.jsonl")


def trl(*words: str, **rewards: list[float]) -> Case:
    columns = {"prompt": ["2 + 2?"] * 2, "completion": ["4", "5"], **rewards, "advantage": [0.5, -0.5]}
    file = "completions_00001.parquet"
    return Case(lambda file: polars.DataFrame(columns).write_parquet(file), list(words), "trl", file)


def slime(*rewards: Any, words: list[str]) -> Case:
    samples = [{"prompt": "2 + 2?", "response": f"{n}", "reward": each} for n, each in enumerate(rewards)]
    return Case(lambda file: torch.save({"samples": samples}, file), words, "slime", "rollout_1.pt")


def lm_eval(*words: str, metrics: list[str], **more: Any) -> Case:
    found = [
        {"doc_id": 0, "arguments": {"a": {"arg_0": "2 + 2?"}}, "resps": [[f"{n}"]], "filter": "none"}
        | {"metrics": metrics, **dict.fromkeys(metrics, float(n)), **more}
        for n in range(2)
    ]
    return Case(found, list(words), "lm-eval", "samples_a_1.jsonl")


def evals(*words: str, format: str = "openai-evals", **measured: list[Any]) -> Case:
    found: list[Any] = [{"spec": {"completion_fns": ["m"]}}]
    for n in range(2):
        asked = {"prompt": "2 + 2?", "sampled": [f"{n}"]}
        given = {name: values[n] for name, values in measured.items()}
        found += [
            {"sample_id": f"s{n}", "type": type_, "data": data}
            for type_, data in (("sampling", asked), ("metrics", given))
        ]
    return Case(found, list(words), format)


WITHIN = "prompt=results.of.*.prompt,response=results.of.*.response"
CASES: dict[str, Case] = {
    "no prompt": Case([{"q": "2 + 2?", "response": f"{n}", "reward": n} for n in range(2)]),
    "no response": Case([{"prompt": "2 + 2?", "meta": {"out": f"{n}"}, "reward": n} for n in range(2)]),
    "no reward": Case([{"prompt": "2 + 2?", "response": f"{n}", "score": n} for n in range(2)]),
    "reward in an object": Case(rows(reward=[{"score": 1}, {"score": 0}])),
    "reward in a list": Case(rows(reward=[[1], [0]])),
    "reward in words": Case(rows(reward=["good", "bad"], ok=[1, 0])),
    "reward null": Case(rows(reward=[None], score=[1, 0])),
    "prompt of no messages": Case(rows(prompt=[[{"q": "2 + 2?"}]])),
    "prompt a number": Case(rows(prompt=[5], text=["2?"])),
    "no such feedback": Case(rows(why=["a"]), ["--map", "feedback=log"]),
    "rows within": Case([{"results": {"of": rows(id=[1])}}], ["--map", WITHIN]),
    "step of words": Case(rows(step=["one"], n=[1])),
    "group of a list": Case(rows(group=[["a"]])),
    "long tags": Case(rows(tags=["a" * 300], kind=["b"])),
    "all passed": Case(rows(reward=[0.7699517591132058, 0.6663600735])),
    "all failed": Case(rows(reward=[0.1 + 0.2, 0.1])),
    "scale": Case(rows(reward=[100.00000001, 0])),
    "sum of nothing": Case(rows(), ["--reward", "a+*b"]),
    "two rewards": Case(rows(), ["--reward", "reward", "--map", "reward=reward"]),
    "map without field": Case(rows(), ["--map", "reward"]),
    "map of verl": verl("--map", "reward=acc"),
    "verl of other fields": Case(rows(), [], "verl", "1.jsonl"),
    "verl without score": verl(score="none"),
    "verl of another step": verl(gts="4", step=2),
    "verl's output as reward": verl("--reward", "output"),
    "trl with two": trl(a_reward=[1.0, 0.0], b_reward=[0.0, 0.0]),
    "trl without it": trl("--reward", "b", a_reward=[1.0, 0.0]),
    "slime with two": slime({"a": 1, "b": 0}, {"a": 0, "b": 0}, words=[]),
    "slime without it": slime({"a": 1}, {"a": 0}, words=["--reward", "c"]),
    "slime of one number": slime(1, 0, words=["--reward", "c"]),
    "lm-eval with two": lm_eval(metrics=["exact", "close"]),
    "lm-eval without it": lm_eval("--reward", "close", metrics=["exact"]),
    "lm-eval in words": lm_eval("--reward", "exact", metrics=["exact", "close"], exact="yes"),
    "evals as rows": evals(format="jsonl", correct=[True, False]),
    "evals without it": evals("--reward", "acc", score=[1, 0]),
    "evals in words": evals(correct=["Y", "N"], score=[1, 0]),
    "latin": table("a b.csv", "cp1252"),
    "unmarked": table("a.csv", "utf-16-le"),
    "csv followed": table("a.csv", "utf-8", "--follow"),
    "returns": Case(lambda file: file.write_text("".join(f"{json.dumps(r)}\r" for r in rows()), newline="")),
    "evaluation followed": lm_eval("--follow", metrics=["exact"]),
    "array in a folder": Case(lambda file: file.with_name("b.json").write_text(json.dumps(rows())), name=""),
    "other rewards": Case(rows(), ["--pass-at", "1"], before=[]),
    "any of two": Case(rows(), [], "", "1.jsonl"),
    "any of none": Case([{"q": "2 + 2?", "said": f"{n}", "ok": n} for n in range(2)], [], ""),
    "a step again": Case(rows(response=["4", "6"]), before=[]),
}


@dataclass
class Try:
    """An ingest: the program's words after `ingest`, and the run."""

    words: list[str]
    known: list[str]
    """Fields that its author knows, where the hint lists none."""
    run: str = "r"

    def but(self, words: list[str], run: str | None = None) -> "Try":
        return Try(words, self.known, run or self.run)

    def play(self, home: Path) -> tuple[int, str]:
        """The exit code, and what it says to do."""
        done = invoke("ingest", *self.words, "--run", self.run, env={"DIAGEVO_HOME": str(home)})
        said = " ".join(done.output.split())
        assert done.exit_code == 0 or " hint: " in f" {said}", said
        return done.exit_code, said.partition("hint: ")[2]


def told(hint: str, now: Try) -> Iterator[Try]:
    """What somebody does who reads the hint. FIELD is each name that it lists."""
    listed = re.search(r"(?:fields: |metrics: |, of |\(of |rewards: )([^;()]*)", hint)
    names = [name.strip() for name in re.split(r"[,;] ", listed[1])] if listed else now.known
    if "METRIC,FILTER" in hint:
        names = hint.partition("METRIC,FILTER: ")[2].split("; ")
    if command := re.search(r"(?:cat|gzip|tr|jq) .* > (?:'([^']+)'|(\S+))", hint):
        file = Path(now.words[1])
        subprocess.run(command[0], shell=True, check=True, cwd=file.parent)
        yield now.but([now.words[0], str(file.parent / (command[1] or command[2])), *now.words[2:]])
        return
    if named := re.search(r"name (?:one|a JSON array alone): (\S+)", hint):
        yield now.but([now.words[0], named[1], *now.words[2:]])
    if whole := re.search(r"diagevo ingest ([a-z-]+) (\S+)((?: --\S+ \S+)*)", hint):
        path = now.words[1] if whole[2] in ("FILE", "PATH") else whole[2].removesuffix(",")
        for fields in _filled(whole[3].split(), names):
            yield now.but([whole[1], path, *fields])
    if gone := re.search(
        r"(?:leave|without) (?:(--\S+)(?: out)?|it out|the option out|one out|--reward out)", hint
    ):
        start = next(n for n, word in enumerate(now.words) if word == (gone[1] or word) and word[:2] == "--")
        flag = now.words[start] in ("--follow", "--resumed")
        yield now.but([*now.words[:start], *now.words[start + (1 if flag else 2) :]])
    if "--resumed" in hint:
        yield now.but([*now.words, "--resumed"])
    if "--run NAME" in hint:
        yield now.but(now.words, run="other")
    for option, value in re.findall(r"(--map|--reward|--pass-at) ([^\s;()]*[^\s;:(),.])", hint):
        for filled in _filled([option, value], names):
            yield now.but(_with(now.words, *filled))


def _filled(words: list[str], names: list[str]) -> Iterator[list[str]]:
    """The words with each name in the place of FIELD, of three fields each in its turn."""
    places = len(re.findall(FILL, " ".join(words)))
    for start in range(len(names) if places else 1):
        rest = names[start:] + names[:start]
        yield [re.sub(FILL, lambda _, rest=rest: rest.pop(0), word) for word in words]


def _with(words: list[str], option: str, value: str) -> list[str]:
    """The words with an option, in the place of the same one; of a mapping in the place of the same field."""
    if option not in words:
        return [*words, option, value]
    place = words.index(option) + 1
    if option == "--map":
        given = dict(each.split("=", 1) for each in words[place].split(",") if "=" in each)
        given |= dict(each.split("=", 1) for each in value.split(","))
        value = ",".join("=".join(each) for each in given.items())
    return [*words[:place], value, *words[place + 1 :]]


@pytest.mark.parametrize("name", CASES)
def test_a_hint_that_is_followed_leads_on(tmp_path: Path, name: str) -> None:
    PLAYED.add(name)
    case = CASES[name]
    file = tmp_path / "files" / (case.name or "a")
    file.parent.mkdir()
    if callable(case.rows):
        case.rows(file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in case.rows))
    known = [] if callable(case.rows) else sorted(case.rows[-1])
    words = [case.format] if case.format else []
    start = Try([*words, str(file if case.name else file.parent), *case.words], known)
    if case.before is not None:
        same = tmp_path / "before.jsonl"
        same.write_text("".join(json.dumps(row) + "\n" for row in [GOOD, BAD]))
        assert Try(["jsonl", str(same), *case.before], []).play(tmp_path)[0] == 0
    code, hint = start.play(tmp_path)
    assert code != 0
    assert _leads_on(tmp_path, start, hint, DEPTH), hint


def _leads_on(home: Path, now: Try, hint: str, depth: int) -> bool:
    SEEN.add(hint)
    for following in told(hint, now):
        code, then = following.play(home)
        if code == 0 or (depth and then != hint and _leads_on(home, following, then, depth - 1)):
            return True
    return False


FOREIGN = re.compile(r"lm_eval …|inspect |oaieval|--predict_only|diagevo train|jq -c|ingest --help|SCORER")
"""Hints that name another program's options, or a run of another kind; jq is for 256 MiB, and scorers are
Inspect's, which the tests run without."""
OPTION = re.compile(r"--[a-z]|diagevo ingest")
ANY = "\0"


def hints() -> Iterator[tuple[str, str]]:
    """Each hint of the readers that names an option or a command, with its place; ANY stands for values."""
    others = {INGEST / "diagnosing.py", INGEST / "labels.py"}  # of `diagnose` and `memory label`
    for file in sorted(set(INGEST.rglob("*.py")) - others):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Assign):
                known = any(isinstance(to, ast.Name) and to.id == "hint" for to in node.targets)
            elif isinstance(node, ast.keyword):
                known = node.arg == "hint"
            else:
                continue
            text = _looks(node.value)
            if known and OPTION.search(text) and not FOREIGN.search(text):
                yield f"{file.name}:{node.value.lineno}", text


def _looks(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_looks(each) for each in values)
        case ast.BinOp(left=left, right=right):
            return _looks(left) + _looks(right)
        case _:
            return ANY


def test_every_hint_that_names_an_option_was_followed() -> None:
    """Runs after the cases, in one process."""
    if len(PLAYED) < len(CASES):
        pytest.skip("needs all cases before it")
    looks = {place: ".*".join(map(re.escape, text.split(ANY))) for place, text in hints()}
    assert len(looks) > 15
    missed = {p: text for p, text in looks.items() if not any(re.search(text, hint) for hint in SEEN)}
    assert not missed
