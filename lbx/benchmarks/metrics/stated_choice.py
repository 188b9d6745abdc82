r"""Rule that finds the option that a free answer states, for custom benchmarks with choices.

1. A statement counts before a mention. Statements are "the answer is B", "Answer: B", "\boxed{B}",
   "<answer>B</answer>", "I choose B", "B is correct", a line that is only the letter, a first line such as
   "B. Tuesday", and the only option that a list of verdicts accepts ("A: no, B: yes"). The option's text may replace
   its letter, also at the beginning of the answer ("Yes, it does.").
2. The last statement counts, unless the first sentence already states another option.
3. Without a statement, a letter counts if every word of one letter in the answer can only mean this option, and the
   sentence neither negates nor supposes the option.
4. Ambiguous answers state no option: "B or C", "B. Monday" if Monday is option A, lines that begin with
   several letters. Denied options are not stated: "The answer is not B.", "B: not mentioned", "❌ B".
5. A letter next to "/", "&", "+", a degree sign or a number is no option: "N/A", "R&D", "C++", "20 °C", "5 A". Nor is a
   number within a longer one: "1" in "1.5".

All letters are alike: "A" and "I" count wherever "B" would, and "A dog" states no option because "B dog" states none.

Words around a stated option are in the languages that models answer in, as regular expressions without groups. A word
of a script with spaces must not be followed by a letter. A word of a script without spaces may be, as in "答案B".
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple


class WordForms(NamedTuple):
    """Words as regex alternatives: in scripts with spaces between words, and in scripts without."""

    spaced_scripts: str
    unspaced_scripts: str


LANGUAGES = frozenset(
    [
        "ar", "bg", "bn", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hu", "id", "it", "ja",
        "ko", "ms", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sv", "th", "tr", "uk", "vi", "zh",
    ]
)  # fmt: skip
"""Languages with answer words and negations below."""

ANSWER = WordForms(
    r"answers?|solution|boxed|antwort\w*|lösung|réponse|respuesta|risposta|resposta|antwoord|svar\w*|vasta\w+|"
    r"odpowied\w+|odpověď|odpoveď|válasz\w*|răspuns\w*|ответ\w*|відповідь|отговор\w*|απάντηση|cevap|cevab\w*|yanıt\w*|"
    r"(?:ال)?إجابة|(?:ال)?جواب|پاسخ|ה?תשובה|उत्तर|जवाब|উত্তর|đáp án|câu trả lời|jawaban\w*|jawapan\w*|"
    r"statement|claim|aussage|behauptung|affirmation|énoncé|afirmación|affermazione|afirmação|uitspraak|утверждение",
    "答案|答え|解答|回答|正解|答|정답|답|คำตอบ",
)
OPTION = WordForms(
    r"options?|choices?|letter|auswahl|buchstabe|opci[oó]n|opzione|opção|lettre|choix|letra|lettera|opcja|optie|"
    r"alternativ\w*|möglichkeit|vaihtoeh\w+|možnost|варіант\w*|вариант\w*|букв\w+|επιλογή|şık|seçenek|pilihan|lựa chọn|"
    r"विकल्प|বিকল্প|(?:ال)?خيار|گزینه|אפשרות",
    "选项|選項|选择|選択肢|선택지|보기|ตัวเลือก",
)
RIGHT = WordForms(
    r"correct[aeo]?s?|right|true|best|richtig\w*|korrekt\w*|bonne|juste|corrett[ao]|corret[ao]s?|cert[ao]|juist\w*|rätt|riktig\w*|oikea|"
    r"poprawn\w+|správn\w+|helyes|corectă?|правильн\w+|верн\w+|вірн\w+|правилен|σωστή?|doğru|(?:ال)?صحيحة?|درست|נכונה?|"
    r"सही|সঠিক|đúng|benar|betul",
    "正确|正確|正しい|对|올바른|맞|ถูก",
)
IS = WordForms(
    r"is|are|was|be|(?:would|must|should) be|ist|lautet|wäre|est|serait|es|sería|è|sarebbe|é|seria|luidt|är|er|on|to|"
    r"jest|je|este|е|є|είναι|هي|هو|است|הי?א|है|হল|là|adalah|ialah|[-–—]",
    "是|为|為|选|選|は|が|은|는|이|가|คือ",
)
CHOOSE = WordForms(
    r"(?:must|should|has to|have to|would) be|it is|it['’]s|es ist|c['’]est|"
    r"choose|pick|select|chose|go(?:ing)? (?:with|for)|think|say|believe|guess|muss|wähle|würde|choisis|dirais|"
    r"doit être|elijo|diría|debe ser|escolho|deve ser|scelgo|direi|deve essere|kies|väljer|vælger|velger|"
    r"wybieram|выбираю|обираю|seçiyorum|اختار|أختار|chọn|memilih|pilih|"
    r"therefore|thus|hence|folglich|daher|donc|por (?:lo )?tanto|quindi|portanto|dus|поэтому|следовательно|لذلك|इसलिए",
    "选择?(?!项)|選擇?(?![項択])|選ぶ|เลือก|因此|所以|故|したがって|よって|따라서",
)
NOT = WordForms(
    r"not|never|no|nor|neither|none|nothing|cannot|\w+n['’]t|wrong|incorrect\w*|false|unlikely|least|worst|except|"
    r"without|ruled?|ruling|eliminat\w+|exclud\w+|reject\w*|contradict\w*|doubt\w*|impossible|un(?:supported|true|mentioned)|absent|nope|nicht|nein|nee|nej|nei|kein\w*|weder|falsch\w*|"
    r"ausgeschlossen|unwahrscheinlich\w*|am wenigsten|pas|ni|faux|fauss?e|moins|fals[oa]|descart\w+|nunca|tampoco|"
    r"menos|incorret[ao]s?|non|né|errat\w+|sbagliat\w+|meno|não|nem|errad\w+|niet|geen|fout\w*|onjuist\w*|inte|ikke|ikkje|fel|"
    r"feil|forkert|ei|eivät|väär\w+|nie|błędn\w+|není|nesprávn\w+|nem|hibás|nu|greșit\w*|не|нет|ни|ні|неверн\w+|"
    r"неправильн\w+|наименее|грешен|δεν|λάθος|değil|yanlış|hayır|ليس\w*|غير|لا|خطأ|خاطئة?|نیست|غلط|לא|אינ\w*|שגוי\w*|"
    r"नहीं|गलत|না|নয়|ভুল|không|sai|bukan|salah|tidak|tak",
    "[不非没沒无無错錯誤误否除]|ない|ません|안 |아니|아닙|않|틀|오답|ไม่|ผิด|いいえ",
)
"""Words that deny, exclude or doubt an option."""
SUPPOSED = WordForms(
    r"but|than|if|whether|unless|suppos\w+|assum\w+|wenn|falls|ob|si|hvis|jeśli|jestli|если|якщо|eğer|إذا|अगर|"
    r"nếu|jika|kalau",
    "如果|若|もし|만약|ถ้า",
)
"""Words that mark a sentence as an assumption or a comparison."""
INSTEAD = WordForms(
    r"rather than|instead of|over|unlike|as opposed to|statt|anstatt|anstelle von|plutôt que|au lieu de|en lugar de|"
    r"en vez de|antes que|invece di|piuttosto che|em vez de|ao invés de|in plaats van|i stället för|i stedet for|"
    r"zamiast|вместо|замість|yerine|بدل\w*|במקום|thay vì|daripada|ketimbang",
    "而不是|而非|ではな|대신|แทน",
)
"""Words between the stated option and a rejected one."""
NOT_AFTER = WordForms(
    r"değil|नहीं|না|নয়|নয়|(?:is|are|was) (?:not|wrong|incorrect|false)|isn['’]t",
    "では?な|じゃな|では?ありません|아니|아닙|不|错|錯",
)
"""Negating words after the option."""
AND = WordForms(
    r"and|or|nor|and/or|as well as|vs\.?|versus|to|und|oder|sowie|bzw\.?|et|ou|y|o|e|ed|en|of|och|eller|og|i|oraz|lub|"
    r"albo|и|или|либо|та|або|чи|ve|veya|ya da|و|أو|او|یا|או|और|या|এবং|বা|và|hoặc|hay|dan|atau",
    "[和或与與及跟とかや와과]|または|또는|이나|และ|หรือ",
)
"""Words between two options that are stated together."""
ALSO = WordForms(
    r"also|too|equally|maybe|perhaps|possibly|alternatively|possible|plausible|otherwise|auch|vielleicht|ebenso|aussi|"
    r"peut-être|también|quizás?|tal vez|anche|forse|também|talvez|ook|misschien|också|kanske|også|måske|też|może|также|"
    r"тоже|возможно|может|belki|أيضا|ربما|भी|शायद|juga|mungkin|cũng|có thể",
    "也|可能|也许|或许|かも|も|도|아마",
)
"""Words that add an option to a stated one."""
REASON = WordForms(
    r"because|since|(?<!well )as(?! well)|for|due|given|based|weil|denn|da|parce|car|puisque|porque|ya que|pues|pois|"
    r"perché|poiché|in quanto|omdat|want|eftersom|fordi|ponieważ|bo|protože|потому|поскольку|так как|тому|бо|çünkü|"
    r"لأن\w*|چون|כי|क्योंकि|কারণ|vì|bởi|karena|sebab",
    "因|というのも|왜냐|เพราะ|เนื่องจาก",
)
"""Words between a statement and its reason."""
AFTERWARDS = WordForms(
    "here|which|though|while|sein|wählen|sagen|nehmen|است|है|হল|होगा|olmalı|olur",
    "[项項选選吧啦了由对對正都均也で]|だ|と|に|の|を|が|は|も|입|이|번|를|을|로|가|은|는|예|라|ครับ|ค่ะ|ซึ่ง|ข้อ|ถูก",
)
"""Other words that may follow the letter of an option. Before any further word, a letter is a word of a sentence."""
ARTICLE = WordForms("the|my|a|die|der|das|la|le|les|el|il|lo|o|de|den|het", "")
ADVERB = WordForms(
    r"most|more|very|likely|probably|definitely|clearly|obviously|certainly|surely|indeed|so|then|simply|actually|just|still|"
    r"only|really|presumably|letter|wahrscheinlich|wohl|eindeutig|also|somit|sicher|klar|probablement|clairement|"
    r"certainement|sûrement|probablemente|claramente|entonces|seguramente|probabilmente|chiaramente|provavelmente|"
    r"waarschijnlijk|duidelijk|troligen|sannsynligvis|sandsynligvis|więc|prawdopodobnie|pravděpodobně|вероятно|"
    r"скорее всего|очевидно|значит|итак|muhtemelen|kesinlikle|غالبا|بالتأكيد|إذن|शायद|mungkin|jadi|chắc|vậy",
    "就|应该?|應該?|该|該|最|可能|大概|たぶん|おそらく|아마|น่าจะ",
)
"""Words that may come between "is" and an option."""
YES = WordForms("yes|ja|oui|vrai|sí|si|sì|sim|tak|ano|да|так|ναι|evet|نعم|بله|כן|हाँ|হ্যাঁ|ya|vâng", "是|对|はい|예|ใช่")


_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_ALPHA = rf"[^\W\d_{_UNSPACED}]"
_LATIN = "A-Za-z0-9\u00c0-\u024f"
_OPEN = r"""[ (\[{<"'“”‘’„«「『]{0,8}"""
_CLOSE = r"""[ )\]}>"'”’»」』]{0,8}"""
_COLON = rf"(?:{_CLOSE}[:：=-]+\s*|>\s*| |)"
_MARKUP = re.compile(r"\\(?:text|math)\w*\s*(?=\{)|\\[()\[\]]|[*_`$~](?!(?<=\d.)\d)|^[ \t]*#+", re.MULTILINE)
_SIGNS = str.maketrans("º˚⁄∕", "°°//")
_SUPERSCRIPT = re.compile(r"(?<=\w)(?=[⁰¹²³⁴-⁹])")
_THOUSANDS = re.compile(r"(?<![\d.,:/])\d{1,3}(?:(?:[,\u00a0\u2009\u202f]|\{,\}|\\[,;])\d{3})+(?![\d:/]|[.,]\d{3})")
_SENTENCE_END = re.compile(r"[.!?。！？…\n;；]")
_CLAUSE_END = re.compile(r"[.,;:!?()。，；：！？、…\n]")
_LINE_END = rf"{_CLOSE}[.。!]{{0,8}}{_CLOSE}(?:\n|\Z)"
_MAX_SENTENCE_LENGTH = 300
_MAX_WORDS_LENGTH = 40
_LETTER_ALONE = re.compile("[a-z]?")
_OPENING = re.compile(_OPEN)
_BETWEEN = re.compile(r"""[ .,(\[)\]}:：、"'”>–—-]*""")
_IN_WORD = re.compile(rf"[^\W_{_UNSPACED}]")
_IN_NUMBER_BEFORE = re.compile(r"(?:[/⁄^_~×÷+−–-]|\d[.,:'’· ]|(?<!\w)\.)\Z")
_IN_NUMBER_AFTER = re.compile(
    r"[.,:'’·_~⁄^]\d| ?[-–—−/⁄×÷+] ?\d| ?[%‰°^+]| \d| ?(?i:hundred|thousand|[mb]illion|million\w*|tausend|mil)\b|"
    "[百千万萬億亿만억]"
)
_ACCEPTED = "[✅✓✔☑🗸👍]\ufe0f?|\\[ ?[xX✓✔] ?\\]"
_REJECTED = "[❌✗✘✖☒☐🚫⛔👎×✕❎]\ufe0f?|\\[ {0,2}\\]"


def _any_of(alternatives: WordForms) -> str:
    forms = alternatives.spaced_scripts.replace(r"\w", _ALPHA)  # \w would run on through scripts without spaces
    forms = re.sub(r"(?<![^|])[a-z](?![^|])", r"(?-i:\g<0>)", forms)  # "I" may be an option, "i" is a word
    spaced = rf"(?<!{_ALPHA})(?i:{forms})(?!{_ALPHA})"
    return f"(?:{spaced}|{alternatives.unspaced_scripts})" if alternatives.unspaced_scripts else spaced


_ANSWER, _OPTION, _RIGHT, _IS, _CHOOSE, _AND, _NOT, _INSTEAD, _REASON, _ALSO = map(
    _any_of,
    (
        ANSWER, OPTION, RIGHT, IS, CHOOSE, AND, NOT, INSTEAD,
        REASON, ALSO,
    ),
)  # fmt: skip
_WORD = rf"(?: ?(?:(?<!{_ALPHA})(?![A-Z](?!{_ALPHA})){_ALPHA}++|[{_UNSPACED}]))"
_FILLER = rf"(?: ?(?:{_any_of(ADVERB)}|{_any_of(ARTICLE)}|{_ANSWER}|{_OPTION}|{_RIGHT}))"
_NAMED = rf"{_OPEN}(?:{_OPTION} ?)?{_OPEN}"
_NO_WORD = rf"(?![{_LATIN}]|[-'’][{_LATIN}]|\.[A-Z](?![a-z])| ?[/&+°^=#♯♭]| \d|[-−](?! |\w))"
_INITIAL = r"\. ?[A-Z]\."
_LETTER = rf"(?P<letter>[A-Z]){_NO_WORD}"
_BEGINS = rf"(?<![{_LATIN}.'’/&+°^=-])(?<![/&+°=\d] )(?<!\b[A-Za-z]\. )(?<!\b[A-Z][a-z]\. )(?<!\bMrs\. )(?<!\bProf\. )"
_FOLLOWS = "|".join(map(_any_of, (AFTERWARDS, REASON, INSTEAD)))
_FOLLOWS_UNSPACED = "|".join(forms.unspaced_scripts for forms in (OPTION, RIGHT, ANSWER, NOT, CHOOSE))
_ENDS = (
    rf""" *(?:\Z|[\n.):,;\]}}<>|"'”」』。，、；！（(!…]|[-–—] |{_ACCEPTED}|{_REJECTED}|"""
    rf"{_FOLLOWS}|{_FOLLOWS_UNSPACED})"
)
_SEPARATOR = r"""[ .:|()\[\]{}"'“”=–—-]{0,8}"""
_VERDICT_END = rf"""(?= *(?:[.,;:!|)\]}}\n"'(\[。，；-]|\Z|[A-Z](?![{_LATIN}])))"""
_DECORATION = rf"(?:(?!{_REJECTED})[^\w\n?？/&+°^])*+"


class _Patterns(NamedTuple):
    """Patterns of stated options.

    Attributes:
        announcement: words before a stated option.
        after_announcement: patterns of the option's letter after an announcement.
        choice_verb: "I choose" and similar words.
        after_choice_verb: patterns of the option's letter after a choice verb.
        before_text: text allowed between such words and an option's text.
        fillers: words allowed after ``before_text``.
        judgement: "is correct", after an option.
        label: beginning of a line with an option, followed by the option's text or a reason.
        bare_line: line that is only a letter.
        letter: letter that does not belong to a word, a name or a quantity.
        option_end: signs and words that may follow the letter of an option.
        statement_end: signs and words that may follow the letter of a stated option.
        lead_in: text that may come before a letter outside of a sentence.
        text_end: signs that may follow an option's text at the beginning of an answer.
        joint: words between options that are stated together.
        preceding_joint, joint_end: such words before an option that is judged.
        alternative: letter with the word that rejects it in favour of another.
        scope: words after which a sentence states no further option.
        exclusion: end of a clause that denies options.
        also: end of a clause that adds an option.
        continuation: beginning of a sentence that continues the sentence before.
        sentence_end: end of a sentence.
        denial: words that deny the option before them.
        negation: any word that negates or supposes.
        after_letter: signs between an option and the verdict on it.
        approval: verdict that accepts an option.
        rejection: verdict that rejects an option.
        mark: sign before an option that accepts or rejects it.
    """

    announcement: re.Pattern[str]
    after_announcement: tuple[re.Pattern[str], ...]
    choice_verb: re.Pattern[str]
    after_choice_verb: tuple[re.Pattern[str], ...]
    before_text: re.Pattern[str]
    fillers: re.Pattern[str]
    judgement: re.Pattern[str]
    label: re.Pattern[str]
    bare_line: re.Pattern[str]
    letter: re.Pattern[str]
    option_end: re.Pattern[str]
    statement_end: re.Pattern[str]
    lead_in: re.Pattern[str]
    text_end: re.Pattern[str]
    joint: re.Pattern[str]
    preceding_joint: re.Pattern[str]
    joint_end: re.Pattern[str]
    alternative: re.Pattern[str]
    scope: re.Pattern[str]
    exclusion: re.Pattern[str]
    also: re.Pattern[str]
    continuation: re.Pattern[str]
    sentence_end: re.Pattern[str]
    denial: re.Pattern[str]
    negation: re.Pattern[str]
    after_letter: re.Pattern[str]
    approval: re.Pattern[str]
    rejection: re.Pattern[str]
    mark: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    join = rf"(?:{_AND}|[,/&+|、])"
    return _Patterns(
        announcement=re.compile(rf"(?<!/)(?:{_ANSWER}|{_RIGHT}(?: ?{_OPTION})?|{_OPTION} ?{_RIGHT})"),
        after_announcement=(
            re.compile(rf"(?P<gap>{_WORD}{{0,6}}?) ?{_IS}(?P<more>{_FILLER}{{0,4}}?) ?{_NAMED}{_LETTER}"),
            re.compile(rf"{_COLON}{_NAMED}{_LETTER}"),
            re.compile(rf"{_COLON}{_OPEN}(?P<letter>[a-z])(?={_LINE_END})"),
        ),
        choice_verb=re.compile(_CHOOSE),
        after_choice_verb=(re.compile(rf"[:：,]?(?P<gap>{_FILLER}{{0,3}}?) ?{_NAMED}{_LETTER}"),),
        before_text=re.compile(rf"(?:(?P<gap>{_WORD}{{0,6}}?) ?{_IS} ?|{_COLON}){_OPEN}"),
        fillers=re.compile(rf"{_FILLER}{{0,4}} ?{_OPEN}"),
        judgement=re.compile(
            rf"{_CLOSE}(?:{_OPTION} ?)?(?:{_IS}{_FILLER}{{0,3}}? ?|(?=[{_UNSPACED}]))(?:{_RIGHT}|{_ANSWER})"
        ),
        label=re.compile(
            rf"{_DECORATION}{_LETTER}(?P<name>(?={_INITIAL}))?(?: ?[.)\]}}:：、,，\"'”]| [-–—] | (?=\(|{_FOLLOWS}))"
        ),
        bare_line=re.compile(rf"{_DECORATION}(?P<letter>[A-Za-z]){_NO_WORD}{_DECORATION}"),
        letter=re.compile(rf"{_BEGINS}{_LETTER}(?!{_INITIAL})"),
        option_end=re.compile(_ENDS),
        statement_end=re.compile(rf"{_ENDS}| *{_AND}|{_CLOSE} *{_any_of(SUPPOSED)}"),
        lead_in=re.compile(rf"(?:[^\w\s'’]|{_IS}|{_CHOOSE}|{_FILLER}) ?\Z"),
        text_end=re.compile(rf"{_CLOSE}(?:[)\],.;:!。，！、；：\n]|\Z| ?[-–—] | ?{_REASON})"),
        joint=re.compile(rf"{_CLOSE}[,;(]?\s?(?:{join}|[-–—])(?: ?{_ALSO})?{_OPEN}"),
        joint_end=re.compile(rf"{_CLOSE},? ?{join}{_OPEN}\Z"),
        preceding_joint=re.compile(rf"{_BEGINS}{_LETTER}{_CLOSE},? ?{join}{_NAMED}\Z"),
        alternative=re.compile(
            rf"[,;(–—-]? ?(?:(?:{_AND}|{_any_of(SUPPOSED)}) )?(?:{_NOT}|{_INSTEAD}) ?{_NAMED}{_LETTER}{_CLOSE}"
        ),
        scope=re.compile(f"{_NOT}|{_INSTEAD}|{_REASON}"),
        exclusion=re.compile(rf"{_CLOSE}{_WORD}{{0,3}}? ?{_NOT}"),
        also=re.compile(rf"{_CLOSE}{_IS} ?{_ALSO}"),
        continuation=re.compile(rf"{_CLOSE}[.;]{_CLOSE}\s?(?:{_AND}|{_ALSO})"),
        sentence_end=re.compile(r"[.!?](?!\w)|[。！？…\n]"),
        denial=re.compile(
            rf"""[ :|()\[\]{{}}"'“”’=–—-]{{0,8}}"""
            rf"(?:{_REJECTED}|0(?:\.0+)?{_VERDICT_END}|{_IS}? ?{_NOT}(?! ?{_NAMED}{_LETTER}))"
            rf"|{_CLOSE}[^\s.,;]{{0,2}} ?{_any_of(NOT_AFTER)}"
        ),
        negation=re.compile(f"{_NOT}|{_any_of(SUPPOSED)}"),
        approval=re.compile(rf"{_ACCEPTED}|(?:{_any_of(YES)}|{_RIGHT}|1(?:\.0+)?){_VERDICT_END}"),
        rejection=re.compile(rf"{_REJECTED}|(?:{_NOT}|0(?:\.0+)?|[xXnNfF]){_VERDICT_END}"),
        after_letter=re.compile(_SEPARATOR),
        mark=re.compile(rf"(?:(?P<accepted>{_ACCEPTED})|{_REJECTED}){_SEPARATOR}\Z"),
    )


def _strip_markup(text: str) -> str:
    """Normalise a text: without markup, in compatibility characters ("Ｂ" is "B"), with single spaces."""
    joined = _THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), _SUPERSCRIPT.sub("^", text.translate(_SIGNS)))
    return re.sub(r"[^\S\n]+", " ", _MARKUP.sub("", unicodedata.normalize("NFKC", joined)))


def stated_choice(
    output: str, choices: Mapping[str, str], language: str = "en", cues: Sequence[str] = ()
) -> str | None:
    """Find the letter of the option that an answer states, or None if it states no option or is ambiguous.

    Args:
        choices: {letter: text} in the question's order.
        language: language of the task. Mentions count only in languages with known negations.
        cues: phrases after which an answer follows, in addition to the known ones.
    """
    answer = _Answer(_strip_markup(output).strip(), choices)
    statements = sorted(
        [*answer.announced_statements(cues), *answer.judged_statements(), *answer.line_statements()],
        key=lambda statement: statement.start,
    )
    if not statements:
        return answer.only_mention() if language.partition("-")[0] in LANGUAGES else None
    opening, last = statements[0], statements[-1]
    first_end = _SENTENCE_END.search(answer.text, opening.start)
    is_first_sentence = not _SENTENCE_END.search(answer.text, 0, opening.start)
    is_undecided = not opening.letter and first_end is not None and last.start > first_end.start()
    return None if is_first_sentence and opening.letter != last.letter and not is_undecided else last.letter or None


class _Statement(NamedTuple):
    """Position and letter of a stated option. The letter is "" if the statement is ambiguous."""

    start: int
    letter: str


class _OptionMatch(NamedTuple):
    """Option found by its text, and the end of that text."""

    letter: str
    end: int


class _Answer:
    """Answer without markup, and the search for stated options in it."""

    def __init__(self, text: str, choices: Mapping[str, str]) -> None:
        self._letters = frozenset(choices)
        options = [
            (" ".join(_strip_markup(option).lower().split()).rstrip("."), letter) for letter, option in choices.items()
        ]
        texts = [option for option, _ in options]
        unique = [pair for pair in options if not _LETTER_ALONE.fullmatch(pair[0]) and texts.count(pair[0]) == 1]
        self._options = sorted(unique, key=lambda pair: -len(pair[0]))
        self.text = self._replace_lettered_options(text)
        lowered = self.text.lower()
        self._lower_text = lowered if len(lowered) == len(self.text) else self.text

    def _replace_lettered_options(self, text: str) -> str:
        """Replace texts of options that mention other options, such as "Both A and B", by the texts' own letters."""
        lettered = {
            option: letter
            for option, letter in self._options
            if any(found["letter"] in self._letters for found in _patterns().letter.finditer(option.upper()))
        }
        if not lettered:
            return text
        pattern = rf"(?<![{_LATIN}])(?:{'|'.join(map(re.escape, lettered))})(?![{_LATIN}])"
        return re.sub(pattern, lambda found: lettered.get(found[0].lower(), found[0]), text, flags=re.IGNORECASE)

    def announced_statements(self, cues: Sequence[str]) -> Iterator[_Statement]:
        """Yield statements after words that announce them, such as "the answer is" or the task's own cues."""
        patterns = _patterns()
        yield from self._statements_after(patterns.announcement, patterns.after_announcement)
        yield from self._statements_after(patterns.choice_verb, patterns.after_choice_verb, is_sentence=True)
        if phrases := "|".join(re.escape(phrase) for cue in cues if (phrase := _strip_markup(cue).strip())):
            yield from self._statements_after(
                re.compile(f"(?i:{phrases})"), (*patterns.after_announcement, *patterns.after_choice_verb)
            )

    def judged_statements(self) -> Iterator[_Statement]:
        """Yield statements such as "B is correct", and the only option that a list of verdicts accepts."""
        patterns = _patterns()
        for match in self._mentions:
            end = match.start()
            before = self.text[max(end - _MAX_WORDS_LENGTH, 0) : end]
            start = end - len(before) + len(before.rstrip(" ([{\"'“"))
            judgement = patterns.judgement.match(self.text, match.end())
            if judgement and not self._is_denied(start, judgement):
                joined = patterns.preceding_joint.search(self.text, max(end - _MAX_WORDS_LENGTH, 0), end)
                yield _Statement(start, "" if joined else match["letter"])
        for option, letter in self._options:
            for start in self._places(option):
                judgement = patterns.judgement.match(self.text, start + len(option))
                if judgement and self._has_boundaries(option, start) and not self._is_denied(start, judgement):
                    joined = patterns.joint_end.search(self.text, max(start - _MAX_WORDS_LENGTH, 0), start)
                    yield _Statement(start, "" if joined and self._option_up_to(joined.start()) else letter)
        accepted = [letter for letter, is_accepted in self._verdicts.items() if is_accepted]
        if len(accepted) == 1 and 1 < len(self._verdicts) == len(self._mentions):
            yield _Statement(self._mentions[0].start(), accepted[0])

    def line_statements(self) -> Iterator[_Statement]:
        """Yield statements that are a line, unless lines begin with different letters, and so list the options."""
        patterns = _patterns()
        bare: list[_Statement] = []
        labelled: list[tuple[_Statement, bool]] = []
        start = 0
        for line in self.text.split("\n"):
            match = patterns.bare_line.fullmatch(line)
            if match and self._verdicts.get(match["letter"].upper(), match["letter"].upper() in self._letters):
                bare.append(_Statement(start, match["letter"].upper()))
            elif letter := self._full_line_option(start):
                labelled.append((_Statement(start, letter), True))
            elif (match := patterns.label.match(self.text, start)) and match["letter"] in self._letters:
                reading = self._read_letter(match)
                is_stated = not start or self._full_line_option(match.end()) == reading
                labelled.append((_Statement(start, reading), is_stated and not self._has_denial(match)))
            start += len(line) + 1
        if len({statement.letter for statement in bare}) == 1:
            yield bare[-1]
        if len({statement.letter for statement, _ in labelled}) == 1:
            yield from (statement for statement, counts in labelled if counts)
        yield from self._opening_text()

    def _opening_text(self) -> Iterator[_Statement]:
        """Yield the statement of an option at the beginning of the answer, as in "Yes, it does."."""
        option = self._option_at(self._skip(_OPENING, 0))
        end = _patterns().text_end.match(self.text, option.end) if option else None
        if not option or not end or (self.text[option.end - 1].isdigit() and end[0][-1:] in tuple(".:)")):
            return  # "2." begins a list
        if not _patterns().denial.match(self.text, option.end):
            yield _Statement(0, "" if self._has_rival(option.end, option.letter) else option.letter)

    def only_mention(self) -> str | None:
        """Find the only letter that is mentioned, or None if there are more, or a sentence negates or supposes it."""
        text, mentions = self.text, self._mentions
        if len(mentions) > 1:
            text = _patterns().alternative.sub(lambda found: " " * len(found[0]), text)
            mentions = [match for match in _patterns().letter.finditer(text) if match["letter"] in self._letters]
        letters = {match["letter"] for match in mentions}
        if len(letters) != 1 or not all(self._verdicts.get(letter, True) for letter in letters):
            return None
        if not all(self._is_mention(match, text) for match in mentions):
            return None
        for option, _ in self._options:
            if _patterns().negation.search(option):  # "Not given" does not deny option B
                text = re.sub(re.escape(option), lambda found: "_" * len(found[0]), text, flags=re.IGNORECASE)
        ends = [0, *(end.end() for end in _SENTENCE_END.finditer(text)), len(text)]
        sentences = {bisect_right(ends, match.start()) for match in mentions}
        is_denied = any(_patterns().negation.search(text, ends[number - 1], ends[number]) for number in sentences)
        return None if is_denied else mentions[0]["letter"]

    def _statements_after(
        self, words: re.Pattern[str], ways: Sequence[re.Pattern[str]], is_sentence: bool = False
    ) -> Iterator[_Statement]:
        """Yield statements of an option's letter, or else of an option's text, after matches of ``words``.

        Args:
            is_sentence: whether only an option's text that ends a clause counts: "it is true that" states nothing.
        """
        patterns = _patterns()
        for announced in words.finditer(self.text):
            start, end = announced.span()
            found = [match for way in ways if (match := way.match(self.text, end))]
            letters = [match for match in found if self._is_statement(match)]
            before = patterns.before_text.match(self.text, end)
            place = before.end() if before else end
            option = self._option_at(place) if before else None
            if before and not option:
                place = self._skip(patterns.fillers, place)
                option = self._option_at(place)
            if option and is_sentence and not patterns.text_end.match(self.text, option.end):
                option = None
            if letters and not (option and place <= letters[0].start("letter") < option.end):
                if not self._is_denied(start, letters[0]):
                    yield _Statement(start, self._read_letter(letters[0]))
            elif option and before and not self._is_denied(start, before, option.end):
                yield _Statement(start, "" if self._has_rival(option.end, option.letter) else option.letter)

    def _is_statement(self, match: re.Match[str]) -> bool:
        """Whether an option's letter is followed by an end, by the option's text or by a known word."""
        letter, end = match["letter"].upper(), match.end("letter")
        return letter in self._letters and bool(
            _patterns().statement_end.match(self.text, end) or self._option_letter(end + 1) == letter
        )

    def _is_mention(self, match: re.Match[str], text: str) -> bool:
        """Whether a letter outside of statements can mean only an option."""
        start, end = match.span()
        before = text[max(start - _MAX_WORDS_LENGTH, 0) : start]
        stripped = before.rstrip(" ([{\"'“:")
        other = self._option_up_to(start - len(before) + len(stripped))
        option = self._option_letter(self._skip(_BETWEEN, end))
        if {other.letter if other else "", option or ""} - {"", match["letter"]}:
            return False
        is_start = not before.strip(" ") and start == len(before)
        is_led_in = is_start or before.endswith("\n") or _patterns().lead_in.search(before)
        return bool(is_led_in and (_patterns().option_end.match(text, end) or option))

    def _places(self, option: str) -> Iterator[int]:
        start = self._lower_text.find(option)
        while start >= 0:
            yield start
            start = self._lower_text.find(option, start + len(option))

    def _is_denied(self, start: int, match: re.Match[str], end: int | None = None) -> bool:
        """Whether a statement is negated, only supposed, or a question.

        Args:
            start: start of the statement.
            match: end of the statement, with the words in between as groups.
            end: end of the statement, if it is later than the match.
        """
        patterns, end = _patterns(), end or match.end()
        clause = _CLAUSE_END.split(self.text[max(start - _MAX_SENTENCE_LENGTH, 0) : start])[-1]
        between = " ".join(text for name, text in match.groupdict().items() if text and name != "letter")
        stop = _SENTENCE_END.search(self.text, end, end + _MAX_SENTENCE_LENGTH)
        return bool(
            patterns.negation.search(f"{clause.strip().removeprefix('but ')} {between}")
            or (stop and stop[0] in "?？")
            or patterns.denial.match(self.text, end)
        )

    def _has_denial(self, label: re.Match[str]) -> bool:
        """Whether the first clause after an option's label denies the option. The option's text is no denial."""
        letter, end = label["letter"], label.end()
        if len(self._verdicts) > 1 or not self._verdicts.get(letter, True):
            return True
        option = self._option_at(self._skip(_OPENING, end))
        if option and option.letter == letter:
            return bool(_patterns().denial.match(self.text, option.end))
        if label["name"] is not None:
            return True
        end = self._skip(_BETWEEN, end)
        stop = _CLAUSE_END.search(self.text, end, end + _MAX_SENTENCE_LENGTH)
        scope = _patterns().scope.search(self.text, end, stop.start() if stop else end + _MAX_SENTENCE_LENGTH)
        return bool(scope and re.fullmatch(_NOT, scope[0]))

    @cached_property
    def _mentions(self) -> list[re.Match[str]]:
        return [match for match in _patterns().letter.finditer(self.text) if match["letter"] in self._letters]

    @cached_property
    def _verdicts(self) -> dict[str, bool]:
        """Options that the answer accepts or rejects one by one, such as "A: no" or "[x] B"."""
        patterns, text = _patterns(), self.text
        verdicts: dict[str, bool] = {}
        before_first = text[: self._mentions[0].start()] if self._mentions else ""
        has_marks_before = bool(patterns.mark.search(before_first[-_MAX_WORDS_LENGTH:]))
        for match in self._mentions:
            letter, (start, end) = match["letter"], match.span()
            if not patterns.option_end.match(text, end):
                continue
            if has_marks_before:
                mark = patterns.mark.search(text, max(start - _MAX_WORDS_LENGTH, 0), start)
                verdict = bool(mark["accepted"]) if mark else None
            else:
                verdict = self._next_verdict(end, letter)
            if verdict is not None:
                verdicts[letter] = verdict and verdicts.get(letter, True)
        return verdicts

    def _next_verdict(self, end: int, letter: str) -> bool | None:
        patterns, text = _patterns(), self.text
        place = self._skip(patterns.after_letter, end)
        if option := self._option_at(place):
            if option.letter != letter:
                return None
            place = self._skip(patterns.after_letter, option.end)
        elif "." in text[end:place] and text[place : place + 1].isalnum():
            return None  # "A. no" may be a list of options
        if patterns.approval.match(text, place):
            return True
        rejection = patterns.rejection.match(text, place)
        return False if rejection and rejection[0] not in self._letters else None

    def _skip(self, signs: re.Pattern[str], start: int) -> int:
        match = signs.match(self.text, start)
        return match.end() if match else start

    def _read_letter(self, match: re.Match[str]) -> str:
        """Letter that a pattern found, or "" if an alternative or another option's text follows."""
        letter, end = match["letter"].upper(), match.end("letter")
        if found := self._option_at(match.start("letter")):
            return found.letter
        place = self._skip(_BETWEEN, end)
        option = self._option_at(place)
        if option and option.letter != letter and _patterns().text_end.match(self.text, option.end):
            return ""
        own_end = option.end if option and option.letter == letter else max(match.end(), end)
        return "" if self._has_rival(own_end, letter) else letter

    def _has_rival(self, end: int, letter: str) -> bool:
        """Whether the sentence of a stated option continues with another option, without denying that one."""
        patterns, text = _patterns(), self.text
        joined = patterns.joint.match(text, end)
        option = self._option_letter(joined.end()) if joined else None
        if option not in (None, letter):
            return True
        limit = end + _MAX_SENTENCE_LENGTH
        again = patterns.continuation.match(text, end)
        stop = patterns.sentence_end.search(text, again.end() if again else end, limit)
        limit = stop.end() if stop else limit
        scope = patterns.scope.search(text, end, limit)
        rivals = [
            rival
            for rival in patterns.letter.finditer(text, end, scope.start() if scope else limit)
            if rival["letter"] in self._letters - {letter} and self._is_rival(rival)
        ]
        return bool(rivals) and not patterns.exclusion.match(text, rivals[-1].end())

    def _is_rival(self, match: re.Match[str]) -> bool:
        patterns = _patterns()
        return bool(patterns.option_end.match(self.text, match.end()) or patterns.also.match(self.text, match.end()))

    def _option_letter(self, start: int) -> str | None:
        option = self._option_at(start)
        return option.letter if option else None

    def _option_at(self, start: int) -> _OptionMatch | None:
        """Find the option with the longest text that starts at a position."""
        for option, letter in self._options:
            if self._lower_text.startswith(option, start) and self._has_boundaries(option, start):
                return _OptionMatch(letter, start + len(option))
        return None

    def _option_up_to(self, end: int) -> _OptionMatch | None:
        """Find the option with the longest text that ends at a position."""
        for option, letter in self._options:
            start = end - len(option)
            if start >= 0 and self._lower_text.startswith(option, start) and self._has_boundaries(option, start):
                return _OptionMatch(letter, start)
        return None

    def _has_boundaries(self, option: str, start: int) -> bool:
        """Whether an option's text at a position does not continue a word or number."""
        end = start + len(option)
        if _IN_WORD.match(self.text, end) and _IN_WORD.match(option[-1]):
            return False
        if start and _IN_WORD.match(option[0]) and _IN_WORD.match(self.text, start - 1):
            return False
        if option[0].isdigit() and _IN_NUMBER_BEFORE.search(self.text, max(start - 2, 0), start):
            return False
        return not (option[-1].isdigit() and _IN_NUMBER_AFTER.match(self.text, end))

    def _full_line_option(self, start: int) -> str:
        """Letter of the option with the text that fills the rest of a line, or "" without one."""
        found = self._option_at(self._skip(_OPENING, start))
        return found.letter if found and re.compile(_LINE_END).match(self.text, found.end) else ""
