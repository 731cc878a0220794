"""Word problems in Chinese: a language without spaces. As in `mathematics`, a mistake is made while working."""

import random
from collections.abc import Callable

from benchmarks.causes.planted.voice import Prompt

NAMES = ["小明", "小红", "老王", "小李", "阿芳", "小刚", "丽丽", "大伟", "小雨", "张叔叔"]
MODES = ("不换算单位", "把折扣当成减去", "漏算返程", "应进一却舍去", "漏算自己")
OPENERS = (
    "我们一步一步来。",
    "好的，先看题目给了什么。",
    "解：",
    "让我想一想。",
    "首先分析题意。",
    "这道题不难。",
    "根据题意，",
    "下面给出解答。",
    "思路如下：",
    "先整理已知条件。",
    "",
    "",
    "",
)
CLOSERS = (
    "答案是{}。",
    "所以答案为{}。",
    "答：{}。",
    "最终结果：{}",
    "\\boxed{{{}}}",
    "因此一共是{}。",
    "结果就是{}。",
    "综上，得{}。",
    "【答案】{}",
    "故为{}。",
)
NUMBERINGS = ("", "", "{}. ", "第{}步：", "（{}）", "{}、", "步骤{}：", "- ")
SAYS = (
    "{what}：{eq}",
    "{eq}，这是{what}",
    "求{what}，得{eq}",
    "可知{what}为{eq}",
    "算出{what}，{eq}",
    "于是{what}是{eq}",
    "那么{eq}，即{what}",
    "由此得到{what}：{eq}",
    "{what}等于{eq}",
    "接着算{what}，{eq}",
    "计算{what}有{eq}",
)
ASIDES = (
    "没有问题。",
    "继续。",
    "注意单位。",
    "再往下看。",
    "到这里很清楚。",
    "这一步很关键。",
    "接下来，",
    "检查一下，正确。",
    "好。",
    "下面继续算。",
)

Step = tuple[str, str, float]
"""What is found, the working, and its result."""
Problem = tuple[str, str, Callable[[random.Random, str | None], list[Step]]]
"""The question, its mode, and the steps."""


def _units(rng: random.Random) -> Problem:
    hours, rate, thing = (
        rng.randint(2, 9),
        rng.randint(3, 40),
        rng.choice(("零件", "瓶盖", "信封", "饼干", "螺丝")),
    )
    asked = (
        f"一台机器每分钟生产{rate}个{thing}，{rng.choice(NAMES)}让它开了{hours}小时，共生产多少个{thing}？"
    )

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        if mode:
            return [(f"{thing}总数", f"{hours}*{rate}", hours * rate)]
        return [
            ("分钟数", f"{hours}*60", hours * 60),
            (f"{thing}总数", f"{hours * 60}*{rate}", hours * 60 * rate),
        ]

    return asked, MODES[0], work


def _metres(rng: random.Random) -> Problem:
    metres, each, thing = (
        rng.randint(2, 30),
        rng.choice((4, 5, 10, 20, 25)),
        rng.choice(("绳子", "布", "铁丝", "彩带", "木条")),
    )
    asked = f"{rng.choice(NAMES)}有一根{metres}米长的{thing}，每{each}厘米剪一段，可以剪成多少段？"

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        if mode:
            return [("段数", f"{metres}/{each}", metres / each)]
        return [
            ("厘米数", f"{metres}*100", metres * 100),
            ("段数", f"{metres * 100}/{each}", metres * 100 / each),
        ]

    return asked, MODES[0], work


def _sale(rng: random.Random) -> Problem:
    price, off, number = rng.randint(3, 40) * 10, rng.choice((6, 7, 8, 9)), rng.randint(2, 6)
    thing = rng.choice(("外套", "台灯", "书包", "球鞋", "水壶", "键盘"))
    asked = f"{thing}每件{price}元，商店打{off}折，{rng.choice(NAMES)}买{number}件要付多少元？"

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        reduced = price * (10 - off) / 10 if mode else price * off / 10
        rate = f"{price}*{(10 - off) / 10:g}" if mode else f"{price}*{off / 10:g}"
        if rng.random() < 0.4:
            return [
                ("原价总额", f"{price}*{number}", price * number),
                ("应付的钱", f"{price * number}*{(10 - off if mode else off) / 10:g}", reduced * number),
            ]
        return [("打折后的单价", rate, reduced), ("应付的钱", f"{reduced:g}*{number}", reduced * number)]

    return asked, MODES[1], work


def _trip(rng: random.Random) -> Problem:
    away, days, place = (
        rng.randint(3, 40),
        rng.randint(3, 25),
        rng.choice(("学校", "公司", "菜场", "车站", "图书馆")),
    )
    asked = f"{rng.choice(NAMES)}家离{place}{away}千米，每天去一次再回家，{days}天一共走多少千米？"

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        if mode:
            return rng.choice(
                (
                    [("总路程", f"{away}*{days}", away * days)],
                    [("每天的路程", f"{away}*1", away), ("总路程", f"{away}*{days}", away * days)],
                )
            )
        if rng.random() < 0.5:
            return [
                ("单程总和", f"{away}*{days}", away * days),
                ("总路程", f"{away * days}*2", away * days * 2),
            ]
        return [("每天的路程", f"{away}*2", away * 2), ("总路程", f"{away * 2}*{days}", away * 2 * days)]

    return asked, MODES[2], work


def _buses(rng: random.Random) -> Problem:
    seats, who = rng.randint(11, 48), rng.choice(("学生", "游客", "工人", "球迷"))
    people = seats * rng.randint(3, 12) + rng.randint(1, seats // 2)
    asked = f"{people}名{who}坐车出行，每辆车最多坐{seats}人，至少需要多少辆车？"

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        full = people // seats
        first = ("坐满的车数", f"{people}//{seats}", full)
        return (
            [first, ("需要的车数", f"{full}+0", full)]
            if mode and rng.random() < 0.3
            else [first]
            if mode
            else [first, ("需要的车数", f"{full}+1", full + 1)]
        )

    return asked, MODES[3], work


def _boxes(rng: random.Random) -> Problem:
    size, thing = rng.randint(6, 24), rng.choice(("鸡蛋", "苹果", "月饼", "杯子"))
    total = size * rng.randint(4, 15) + rng.randint(1, size // 2)
    asked = f"{total}个{thing}装盒，每盒装{size}个，要全部装完，{rng.choice(NAMES)}至少要准备几个盒子？"

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        full = total // size
        first = ("装满的盒数", f"{total}//{size}", full)
        return [first] if mode else [first, ("盒子数", f"{full}+1", full + 1)]

    return asked, MODES[3], work


def _shared(rng: random.Random) -> Problem:
    friends, each, who = rng.randint(3, 14), rng.randint(2, 19), rng.choice(NAMES)
    thing = rng.choice(("糖", "橘子", "票", "本子", "气球"))
    asked = f"{who}请来{friends}位朋友，{who}和朋友们每人分到{each}份{thing}，一共需要多少份{thing}？"

    def work(rng: random.Random, mode: str | None) -> list[Step]:
        if mode:
            return [(f"{thing}的份数", f"{friends}*{each}", friends * each)]
        if rng.random() < 0.4:
            return [
                ("朋友们的份数", f"{friends}*{each}", friends * each),
                (f"{thing}的份数", f"{friends * each}+{each}", friends * each + each),
            ]
        return [
            ("人数", f"{friends}+1", friends + 1),
            (f"{thing}的份数", f"{friends + 1}*{each}", (friends + 1) * each),
        ]

    return asked, MODES[4], work


PROBLEMS = ((_units, _metres), (_sale,), (_trip,), (_buses, _boxes), (_shared,))
"""By mode."""


def prompt(rng: random.Random) -> Prompt:
    question, own, work = rng.choice(rng.choice(PROBLEMS))(rng)

    def write(rng: random.Random, mode: str | None) -> tuple[object, int | None, tuple[str, ...]]:
        steps = work(rng, mode or None)
        slip = len(steps) - 1 if mode == "" else -1
        opener, closer, numbering = rng.choice(OPENERS), rng.choice(CLOSERS), rng.choice(NUMBERINGS)
        sign, tight, chatty = rng.choice(("×", "*", "×", "乘以")), rng.random() < 0.6, rng.choice((0, 0, 0.3))
        lines, wrong, result = [opener] if opener else [], None, 0.0
        for place, (what, sum_, value) in enumerate(steps):
            result = value + rng.choice((-20, -9, -3, -1, 1, 2, 7, 10, 30)) if place == slip else value
            if place == slip or (mode and wrong is None and (place or mode != MODES[3])):
                wrong = len(lines)
            written = sum_.replace("//", "÷").replace("/", "÷").replace("*", sign)
            written += (
                f"≈{result:g}" if "//" in sum_ and mode != "" and rng.random() < 0.4 else f"={result:g}"
            )
            written = written if tight else written.replace("=", " = ")
            lines.append(numbering.format(place + 1) + rng.choice(SAYS).format(what=what, eq=written) + "。")
            if rng.random() < chatty:
                lines.append(rng.choice(ASIDES))
        lines.append(closer.format(f"{result:g}"))
        text = rng.choice(("\n", "\n", "\n\n")).join(lines)
        if "\n\n" in text and wrong is not None:
            wrong *= 2
        return (
            text,
            wrong,
            (f"opener {opener}", f"closer {closer}", f"numbering {numbering}", f"times {sign}"),
        )

    truth = work(random.Random(0), None)[-1][2]
    return Prompt(question, (own,), write, f"{truth:g}")
