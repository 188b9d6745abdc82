"""Texts of the needle benchmark: haystack sentences, needle sentences and questions, English and Chinese.

The vocabulary is closed and free of digits, so that a number in a document is always a needle's value, and no
key is a haystack word, so that a key in a document is always a needle's. Sentences are drawn from templates with only
``random.Random.random``: the one generator method with a sequence that Python promises to keep between versions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_SLOT = re.compile(r"\{(\w+)\}")


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """Return a random item, by ``rng.random()``; the items must not be empty."""
    return items[int(rng.random() * len(items))]


def pick_several(rng: random.Random, items: Sequence[T], count: int) -> list[T]:
    """Return ``count`` different items in random order, by ``rng.random()``."""
    rest = list(items)
    return [rest.pop(int(rng.random() * len(rest))) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Language:
    """Haystack, needle and question texts of a language.

    Attributes:
        unit: unit of a document's length, "words" or "characters".
        joiner: separator of two sentences.
        templates: sentences with slots; a slot names a list in ``words``.
        words: the lists.
        lead: the needle sentence up to its value; ``{key}``. A prompt ends in it, so that it can be completed.
        stop: end of the needle sentence after its value.
        before: the prompt's text before the document.
        ask_one, ask_many: the question and the lead-in of the answer; ``{keys}``.
        comma, last: separators of asked keys, and before the last of them.
    """

    unit: str
    joiner: str
    templates: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    keys: tuple[str, ...]
    lead: str
    stop: str
    before: str
    ask_one: str
    ask_many: str
    comma: str
    last: str

    def count(self, text: str) -> int:
        """Count the text's length in ``unit``: words between spaces, or characters that are not space."""
        return len(text.split()) if self.unit == "words" else len("".join(text.split()))

    def sentences(self, rng: random.Random) -> Iterator[str]:
        """Yield endless haystack sentences; a sentence repeats only after some thousands."""
        seen: set[str] = set()
        while True:
            sentence = self._sentence(rng)
            for _ in range(20):
                if sentence not in seen:
                    break
                sentence = self._sentence(rng)
            seen.add(sentence)
            yield sentence

    def _sentence(self, rng: random.Random) -> str:
        filled = _SLOT.sub(lambda slot: pick(rng, self.words[slot[1]]), pick(rng, self.templates))
        return filled[0].upper() + filled[1:]

    def needle(self, key: str, value: str) -> str:
        """Return the sentence with the key's value."""
        return self.lead.format(key=key) + " " + value + self.stop

    def question(self, keys: Sequence[str]) -> str:
        """Return the question after the document; it ends in the needle sentence of the first key, up to its value."""
        listed = self.comma.join(keys[:-1]) + self.last + keys[-1] if len(keys) > 1 else keys[0]
        return (self.ask_many if len(keys) > 1 else self.ask_one).format(keys=listed) + self.lead.format(key=keys[0])


def _w(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _p(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


ENGLISH = Language(
    unit="words",
    joiner=" ",
    templates=(
        "the {nature} {person} {did} the {look} {thing} {place}.",
        "{time}, the {person} {did} a {look} {thing}.",
        "{time}, a {nature} {person} {did} the {thing} {place}.",
        "the {person} and the {person2} {went} {place}.",
        "nobody {place} had seen the {look} {thing} of the {person}.",
        "a {look} {thing} stood {place}, and the {person} {did} it.",
        "the {person} told the {nature} {person2} about the {thing} {place}.",
        "{time}, the {look} {thing} was still {place}.",
        "the {person} {went} {place} because the {thing} was {look}.",
        "when the {person} came home, the {person2} {did} the {look} {thing}.",
        "{place} lived a {nature} {person} with a {look} {thing}.",
        "the {weather} made the {person} {feeling}.",
        "{time}, the {weather} reached the houses {place}.",
        "the {person2} {did} every {thing}, but the {person} stayed {feeling}.",
        "some say that the {nature} {person} once {did} a {thing} {place}.",
    ),
    words={
        "person": _w(
            "baker farmer teacher sailor painter gardener doctor driver singer writer miller weaver carpenter "
            "fisher merchant nurse pilot porter potter tailor"
        ),
        "person2": _w(
            "shepherd student traveller waiter clerk cook dancer guard hunter smith neighbour stranger widow "
            "child grandmother uncle"
        ),
        "nature": _w(
            "grey young quiet cheerful gentle sincere patient proud tired clever careful friendly lonely kind"
        ),
        "look": _w(
            "small heavy bright narrow wooden green broken clean cold dusty plain rusty round simple sturdy "
            "tall warm white blue yellow"
        ),
        "did": _w(
            "carried painted cleaned found moved sold repaired borrowed admired described forgot noticed "
            "wrapped lifted watched bought kept hid chose drew"
        ),
        "went": _w("walked waited rested worked talked danced sang slept met laughed"),
        "thing": _w(
            "lamp basket table clock ladder blanket mirror kettle wagon bench bottle carpet drum kite map "
            "bucket rope chair bell coat cup plate saddle sail shelf shovel spoon suitcase teapot ticket towel "
            "wheel"
        ),
        "place": _p(
            "in the garden, near the harbour, behind the barn, by the river, at the market, beside the mill, "
            "under the bridge, in the kitchen, near the station, on the hill, at the library, beyond the meadow, "
            "along the road, in the cellar, across the square, by the fountain, near the school, in the workshop, "
            "at the inn, on the terrace"
        ),
        "time": _p(
            "in the morning, after lunch, before sunset, late at night, on market day, during the storm, that winter, "
            "every spring, one evening, at noon, last summer, once a week, years later, at dawn"
        ),
        "weather": _w("rain snow wind fog sunshine thunder frost heat"),
        "feeling": _w("happy sad sleepy thoughtful hungry calm restless silent"),
    },
    keys=_w(
        "maple cedar willow birch tiger falcon heron badger raven salmon beaver lynx amber coral opal topaz "
        "granite marble copper silver comet planet saturn venus nebula orbit tulip lotus orchid violet clover "
        "fern mango lemon cherry papaya pepper ginger saffron vanilla cobalt crimson indigo scarlet tango "
        "waltz sonata ballad pyramid castle temple tower dragon phoenix unicorn griffin anchor compass lantern "
        "beacon glacier canyon lagoon volcano"
    ),
    lead="The code for {key} is",
    stop=".",
    before="Read the text. Afterwards you will be asked about the codes in it.\n\nText: ",
    ask_one="Question: What is the code for {keys}? Give only the number.\nAnswer: ",
    ask_many="Question: What are the codes for {keys}? Give one short sentence for each.\nAnswer: ",
    comma=", ",
    last=" and ",
)

CHINESE = Language(
    unit="characters",
    joiner="",
    templates=(
        "{time}，{nature}{person}在{place}{did}了{thing}。",
        "{person}和{person2}在{place}{went}。",
        "{place}有{thing}，是{person}留下的。",
        "{nature}{person}把{own}从{place}带回了家。",
        "{time}，{person}还在{place}{went}。",
        "没有人知道{person}为什么{did}了{thing}。",
        "{person2}说，{own}一直放在{place}。",
        "{time}，{weather}，{person}只好在{place}{went}。",
        "{nature}{person2}{did}了{thing}，心里很{feeling}。",
        "听说{person}曾经在{place}{did}过{thing}。",
        "{weather}的时候，{place}的人都很{feeling}。",
        "{person}送给{person2}{thing}，又去{place}{went}。",
        "{time}，{person2}看见{person}在{place}{went}。",
        "虽然{weather}，{nature}{person}还是{did}了{thing}。",
    ),
    words={
        "person": _w(
            "面包师 农夫 老师 水手 画家 园丁 医生 司机 歌手 作家 木匠 渔夫 商人 护士 裁缝 学生 旅客 厨师 猎人 邮差"
        ),
        "person2": _w("牧童 邻居 店员 守卫 铁匠 祖母 叔叔 孩子 船长 房东 摄影师 陌生人"),
        "nature": _w("年轻的 安静的 快乐的 温和的 诚实的 耐心的 骄傲的 疲倦的 聪明的 细心的 友好的 孤独的"),
        "thing": _w(
            "一盏台灯 一只篮子 一张桌子 一座挂钟 一架梯子 一条毯子 一面镜子 一把水壶 一辆马车 一条长凳 "
            "一只瓶子 一块地毯 一面小鼓 一只风筝 一张地图 一只水桶 一根绳子 一把椅子 一件大衣 一只杯子 "
            "一只盘子 一副马鞍 一把铲子 一把勺子 一只箱子 一张车票 一条毛巾 一只轮子"
        ),
        "own": _w(
            "那盏台灯 那只篮子 那条毯子 那面镜子 那把水壶 那张地图 那根绳子 那把椅子 那件大衣 那只箱子 "
            "那张车票 那只风筝"
        ),
        "did": _w("买下 修好 搬走 卖掉 找到 借走 画下 收起 看中 挑选 打量 包好"),
        "went": _w("散步 等人 休息 工作 聊天 跳舞 唱歌 睡觉 读书 喝茶 发呆 写信"),
        "place": _w(
            "花园里 港口边 谷仓后 河岸上 市场里 磨坊旁 桥下 厨房里 车站旁 山坡上 图书馆里 草地上 路边 地窖里 "
            "广场上 喷泉旁 学校门口 作坊里 客栈里 阳台上"
        ),
        "time": _w("清晨 午饭后 傍晚 深夜 赶集那天 那年冬天 去年夏天 有一天 每到春天 中午 过了很久 天亮时 周末 节日里"),
        "weather": _w("下着雨 下着雪 刮着风 起了雾 出了太阳 打着雷 结了霜 天气很热"),
        "feeling": _w("高兴 难过 平静 满足 不安 好奇 得意 惊讶"),
    },
    keys=_w(
        "枫树 雪松 柳树 白桦 老虎 猎鹰 水獭 乌鸦 鲑鱼 海狸 山猫 狐狸 琥珀 珊瑚 玛瑙 黄玉 花岗岩 大理石 黄铜 "
        "白银 彗星 行星 土星 金星 星云 月亮 郁金香 荷花 兰花 紫罗兰 苜蓿 蕨草 芒果 柠檬 樱桃 木瓜 胡椒 生姜 "
        "藏红花 香草 钴蓝 绯红 靛青 朱砂 探戈 圆舞曲 奏鸣曲 民谣 金字塔 城堡 神庙 高塔 飞龙 凤凰 麒麟 独角兽 "
        "船锚 指南针 灯笼 灯塔 冰川 峡谷 泻湖 火山"
    ),
    lead="{key}的密码是",
    stop="。",
    before="请阅读下面的文字，之后会问到其中的密码。\n\n正文：",
    ask_one="问题：请说出{keys}的密码，只回答数字。\n回答：",
    ask_many="问题：请说出{keys}的密码，每个用一句话回答。\n回答：",
    comma="、",
    last="和",
)

LANGUAGES = {"en": ENGLISH, "zh": CHINESE}
