"""Synthetic references and predictions: words of our own, put together by a seed, and bent in every way that a scorer
may stumble over."""

from __future__ import annotations

import random
from collections.abc import Iterator

_EN = """
a an the copper lantern valley river engine teacher window seven nineteen forty-two quietly carried measured before
after under beyond market copper's theory signal garden letter northern harvest never often because which was were had
builds repaired compares Marlow Ostrava Dr. station bridge oxygen ticket paper committee reported an increase of
percent within the first quarter while others remained unchanged and no further action followed
"""
_ZH = """
铜灯 山谷 河流 机器 老师 窗户 七 十九 安静 测量 之前 市场 信号 花园 信件 北方 收获 经常 因为 桥梁 氧气 车票 委员会 报告
增加 其他 保持 不变 的 和 是 在 了 一种 进行 可以 研究 发现 季度 温度 电压 城市 学校 图书馆 方法 结果 主要 位于
"""
EN, ZH = _EN.split(), _ZH.split()
MARKS = "，。、；："


def words(chance: random.Random, count: int, zh: bool) -> str:
    """So many words, with punctuation now and then; full stops make sentences."""
    chosen = []
    for word in chance.choices(ZH if zh else EN, k=count):
        mark = chance.choice(MARKS) if zh else chance.choice((",", ".", ";"))
        chosen.append(word + (mark if chance.random() < 0.12 else ""))
    return ("" if zh else " ").join(chosen)


def bent(chance: random.Random, answer: str, other: str, zh: bool) -> Iterator[tuple[str, str]]:
    """(kind, prediction) of an answer: what a model might say instead of it."""
    parts = list(answer) if zh else answer.split()
    shuffled = chance.sample(parts, len(parts))
    glue = "" if zh else " "
    yield from {
        "exact": answer,
        "upper": answer.upper(),
        "swapcase": answer.swapcase(),
        "trailing": answer + " .",
        "prefix": f"{'答案是' if zh else 'The answer is'}: {answer}",
        "reversed": glue.join(reversed(parts)),
        "shuffled": glue.join(shuffled),
        "half": glue.join(parts[: max(1, len(parts) // 2)]),
        "doubled": glue.join((answer, answer)),
        "repeat": "\n".join([answer] * 3),
        "other": other,
        "interleaved": glue.join(word for pair in zip(parts, reversed(parts), strict=True) for word in pair),
        "first line right": f"{answer}\n{other}",
        "second line right": f"\n\n{other}\n{answer}",
        "leading newlines": f"\n\r\n \n{answer}",
        "crlf": answer.replace(glue or "，", "\r\n"),
        "tabs": answer.replace(" ", "\t"),
        "nbsp": answer.replace(" ", "\u00a0"),
        "zero width": "\u200b".join(answer),
        "fullwidth": "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in answer),
        "combining": answer.replace("e", "e\u0301").replace("a", "ä"),
        "emoji": f"🎉 {answer} 👩‍👩‍👧",
        "markdown": f"**{answer}**\n- `{other}`",
        "quotes": f"“{answer}” ‘{other}’",
        "controls": f"{answer}\x00\x0b\x1c{other}",
        "decimals": f"{answer} 3.14 1,000.50 ２１ ½",
        "mixed": f"{answer} {words(chance, 6, not zh)}",
        "long": words(chance, 700, zh) + answer,
        "deep": glue.join(chance.choices([p for p in parts if "." not in p] or ["x"], k=1300)),
        "spaces": " \t ",
        "newline": "\n",
        "empty": "",
        "punctuation": "...!?。，",
    }.items()


def code(chance: random.Random) -> str:
    """A line of code."""
    names = chance.sample(["count", "total", "row", "index", "buffer", "node", "value", "items"], 3)
    return chance.choice(
        [
            "{0} = {1}.get({2}, None)",
            "for (int {0} = 0; {0} < {1}; {0}++) {{",
            'return self.{0}({1}, "{2}")',
            "if {0} is not None and {1} > {2}:",
            "private final Map<String, {0}> {1} = new HashMap<>({2});",
        ]
    ).format(*names)


def bent_code(chance: random.Random, line: str) -> Iterator[tuple[str, str]]:
    """(kind, prediction) of a line of code."""
    other, long = code(chance), " ".join(code(chance) for _ in range(8))
    cut = chance.randrange(1, len(line))
    yield from {
        "exact": line,
        "block": f"{line}\n{other}\n",
        "other": other,
        "comment first": f"# {other}\n{line}",
        "slashes first": f"// {other}\n{line}",
        "fence": f"```python\n{line}\n```",
        "spaces first": f"    \n{line}",
        "newlines first": f"\n\n{line}",
        "cut": line[:cut],
        "one more": line[:cut] + chance.choice("abc _(") + line[cut:],
        "one less": line[:cut] + line[cut + 1 :],
        "swapped": line[cut:] + line[:cut],
        "inline": f"{line}  # {other}",
        "tab": "\t" + line,
        "long": long,
        "upper": line.upper(),
        "empty": "",
        "all comments": f"# {line}\n// {line}\n`{line}`",
    }.items()
