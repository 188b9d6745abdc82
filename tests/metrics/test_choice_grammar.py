"""Answers made by a grammar of statements, hedges, denials, refusals and lists of verdicts, whose meaning is known.

To add a language, add its words to ``LANGUAGES``. {L} is an option, {M} another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.benchmarks.metrics.stated_choice import stated_choice

LETTERS = "ABCDEFGHIJ"
TEXTS = ["Anna", "Boris", "Clara", "David", "Emil", "Frida", "Gustav", "Hanna", "Igor", "Julia"]
CHOICES = dict(zip(LETTERS, TEXTS, strict=True))


@dataclass(frozen=True)
class Words:
    """How a language states, doubts, denies and judges an option.

    Attributes:
        reason: follows a statement.
    """

    statements: tuple[str, ...]
    reason: str
    hedges: tuple[str, ...]
    denials: tuple[str, ...]
    refusals: tuple[str, ...]
    yes: str
    no: str
    right: str
    wrong: str


LANGUAGES = {
    "en": Words(
        ("The answer is {L}", "Answer: {L}", "The correct answer is ({L})", "I choose {L}", "{L} is correct"),
        "because the text says so",
        ("{L} or {M}", "either {L} or {M}", "both {L} and {M}", "{L} as well as {M}", "The answer is {L} or {M}",
         "I am torn between {L} and {M}", "{L} and {M} are correct", "The answer is {L}, possibly {M}"),
        ("The answer is not {L}", "{L} is wrong", "Not {L}", "The least likely answer is {L}", "It can't be {L}"),
        ("I cannot tell", "N/A", "The text does not say", "Unknown", "None of them"),
        "yes", "no", "correct", "wrong",
    ),
    "de": Words(
        ("Die Antwort ist {L}", "Antwort: {L}", "Die richtige Antwort lautet {L}", "Ich wähle {L}", "{L} ist richtig"),
        "weil es im Text steht",
        ("{L} oder {M}", "entweder {L} oder {M}", "sowohl {L} als auch {M}", "Die Antwort ist {L} oder {M}",
         "Ich schwanke zwischen {L} und {M}", "{L} und {M} sind richtig"),
        ("Die Antwort ist nicht {L}", "{L} ist falsch", "Nicht {L}", "Die falsche Antwort ist {L}"),
        ("Ich weiß es nicht", "k. A.", "Das steht nicht im Text"),
        "ja", "nein", "richtig", "falsch",
    ),
    "fr": Words(
        ("La réponse est {L}", "Réponse : {L}", "La bonne réponse est la {L}", "Je choisis {L}", "{L} est juste"),
        "car le texte le dit",
        ("{L} ou {M}", "soit {L} soit {M}", "à la fois {L} et {M}", "La réponse est {L} ou {M}",
         "J'hésite entre {L} et {M}"),
        ("La réponse n'est pas {L}", "{L} est faux", "Pas {L}"),
        ("Je ne sais pas", "s/o", "Le texte ne le dit pas"),
        "oui", "non", "correct", "faux",
    ),
    "es": Words(
        ("La respuesta es {L}", "Respuesta: {L}", "La respuesta correcta es la {L}", "Elijo {L}", "{L} es correcta"),
        "porque el texto lo dice",
        ("{L} o {M}", "o bien {L} o bien {M}", "tanto {L} como {M}", "La respuesta es {L} o {M}",
         "Dudo entre {L} y {M}"),
        ("La respuesta no es {L}", "{L} es falsa", "No {L}"),
        ("No lo sé", "N/A", "El texto no lo dice"),
        "sí", "no", "correcto", "falso",
    ),
    "it": Words(
        ("La risposta è {L}", "Risposta: {L}", "La risposta corretta è la {L}", "Scelgo {L}", "{L} è corretta"),
        "perché lo dice il testo",
        ("{L} o {M}", "sia {L} che {M}", "La risposta è {L} o {M}", "{L} oppure {M}", "Sono indeciso tra {L} e {M}"),
        ("La risposta non è {L}", "{L} è sbagliata", "Non {L}"),
        ("Non lo so", "n/d", "Il testo non lo dice"),
        "sì", "no", "corretto", "falso",
    ),
    "pt": Words(
        ("A resposta é {L}", "Resposta: {L}", "A resposta correta é a {L}", "Escolho {L}", "{L} é correta"),
        "porque o texto o diz",
        ("{L} ou {M}", "tanto {L} como {M}", "A resposta é {L} ou {M}", "Fico entre {L} e {M}"),
        ("A resposta não é {L}", "{L} é falsa", "Não {L}"),
        ("Não sei", "N/A", "O texto não diz"),
        "sim", "não", "correto", "errado",
    ),
    "nl": Words(
        ("Het antwoord is {L}", "Antwoord: {L}", "Het juiste antwoord is {L}", "Ik kies {L}", "{L} is juist"),
        "omdat het in de tekst staat",
        ("{L} of {M}", "zowel {L} als {M}", "Het antwoord is {L} of {M}", "Ik twijfel tussen {L} en {M}"),
        ("Het antwoord is niet {L}", "{L} is fout", "Niet {L}"),
        ("Ik weet het niet", "n.v.t.", "Dat zegt de tekst niet"),
        "ja", "nee", "juist", "fout",
    ),
    "pl": Words(
        ("Odpowiedź to {L}", "Odpowiedź: {L}", "Poprawna odpowiedź to {L}", "Wybieram {L}"),
        "ponieważ tak mówi tekst",
        ("{L} lub {M}", "albo {L}, albo {M}", "zarówno {L}, jak i {M}", "Odpowiedź to {L} lub {M}"),
        ("Odpowiedź to nie {L}", "{L} jest błędna", "Nie {L}"),
        ("Nie wiem", "Tekst tego nie mówi"),
        "tak", "nie", "poprawne", "błędne",
    ),
    "ru": Words(
        ("Ответ: {L}", "Правильный ответ — {L}", "Правильный ответ {L}", "Выбираю {L}", "Верный ответ: ({L})"),
        "потому что так сказано в тексте",
        ("{L} или {M}", "либо {L}, либо {M}", "и {L}, и {M}", "Ответ: {L} или {M}", "Не уверен: {L} или {M}"),
        ("Ответ не {L}", "{L} неверно", "Не {L}"),
        ("Не знаю", "Н/Д", "В тексте этого нет"),
        "да", "нет", "верно", "неверно",
    ),
    "tr": Words(
        ("Cevap: {L}", "Doğru cevap {L}", "Yanıt: {L}", "Cevap {L}"),
        "çünkü metin öyle diyor",
        ("{L} veya {M}", "ya {L} ya da {M}", "hem {L} hem {M}", "Cevap {L} veya {M}"),
        ("Cevap {L} değil", "{L} yanlış"),
        ("Bilmiyorum", "Metinde yok"),
        "evet", "hayır", "doğru", "yanlış",
    ),
    "ar": Words(
        ("الإجابة هي {L}", "الإجابة: {L}", "الإجابة الصحيحة هي {L}", "الجواب هو {L}"),
        "لأن النص يقول ذلك",
        ("{L} أو {M}", "إما {L} أو {M}", "الإجابة هي {L} أو {M}", "كل من {L} و {M}"),
        ("الإجابة ليست {L}", "{L} خاطئة", "ليس {L}"),
        ("لا أعرف", "غير متوفر", "النص لا يذكر ذلك"),
        "نعم", "لا", "صحيح", "خطأ",
    ),
    "hi": Words(
        ("उत्तर {L} है", "उत्तर: {L}", "सही उत्तर {L} है", "जवाब: {L}"),
        "क्योंकि पाठ में लिखा है",
        ("{L} या {M}", "{L} और {M} दोनों", "उत्तर {L} या {M} है", "उत्तर: {L} या {M}"),
        ("उत्तर {L} नहीं है", "{L} गलत है"),
        ("मुझे नहीं पता", "पाठ में नहीं है"),
        "हाँ", "नहीं", "सही", "गलत",
    ),
    "zh": Words(
        ("答案是{L}", "答案：{L}", "正确答案为{L}", "选{L}", "{L}正确", "故选{L}"),
        "因为文中提到了",
        ("{L}或{M}", "{L}和{M}", "要么{L}要么{M}", "答案是{L}或{M}", "选{L}或{M}", "{L}、{M}都对",
         "在{L}与{M}之间犹豫"),
        ("答案不是{L}", "{L}错误", "不选{L}", "{L}不对"),
        ("不知道", "无法确定", "文中没有提到"),
        "是", "否", "正确", "错误",
    ),
    "ja": Words(
        ("答えは{L}です", "答え：{L}", "正解は{L}です", "正解は{L}"),
        "本文にそう書いてあるからです",
        ("{L}か{M}", "{L}または{M}", "{L}と{M}の両方", "答えは{L}か{M}です", "正解は{L}または{M}です"),
        ("答えは{L}ではない", "{L}は誤り", "答えは{L}ではありません"),
        ("わかりません", "本文には書かれていない"),
        "はい", "いいえ", "正しい", "誤り",
    ),
    "ko": Words(
        ("정답은 {L}입니다", "정답: {L}", "답은 {L}입니다", "답: {L}"),
        "왜냐하면 본문에 있기 때문입니다",
        ("{L} 또는 {M}", "{L}와 {M} 모두", "정답은 {L} 또는 {M}입니다", "{L}나 {M}"),
        ("정답은 {L}가 아닙니다", "{L}는 틀렸습니다"),
        ("모르겠습니다", "본문에 없습니다"),
        "예", "아니요", "맞음", "틀림",
    ),
}  # fmt: skip
WRAPPINGS = ("{}", "{}.", "**{}**", "Let me see the text first.\n\n{}.")
PAIRS = [("A", "B"), ("B", "A"), ("C", "I"), ("I", "D"), ("D", "C")]
FORMS = (
    "{L}", "({L})", "{L}.", "**{L}**", "\\boxed{{{L}}}", "<answer>{L}</answer>", "{L}. {T}", "{L}) {T}", "{T}", "{T}.",
    "Option {L}", "{T}, as the text says.", "{T} - see the text.", "{{\"answer\": \"{L}\"}}", "{L} instead of {M}",
    "{L} rather than {M}", "{L}, not {M}", "The answer is {L}, not {M}.", "✅ {L}", "[x] {L}", "{l}", "Option {L}: {T}",
    "Thus, ({L}).", "{L}. {T}. Option {M} is wrong.", "{T} is correct.", "The answer is most likely {T}.",
)  # fmt: skip
HEDGED_FORMS = (
    "{L}/{M}", "{L} & {M}", "{L} + {M}", "{L}, {M}", "{L} {M}", "{L}{M}", "{L}\n{M}", "<answer>{L}, {M}</answer>",
    "\\boxed{{{L},{M}}}", "({L}) ({M})", "{L}; {M}", "{L}-{M}", "{L} | {M}", "{L}. {U}", "{U} ({L})", "{T} or {U}",
    "The answer is {T} or {U}.", "The answer is {L}. {U}", "{L}. {T} {M}. {U}", "{{\"answer\": [\"{L}\", \"{M}\"]}}",
    "{L}?", "{L} → {M}", "{L} > {M}", "{L} = {M}", "**{L}** or **{M}**", "\\boxed{{{L}}} or \\boxed{{{M}}}",
)  # fmt: skip
NO_OPTIONS = (
    "N/{L}", "{L}/C test", "R&{L}", "Q & {L}", "{L}++", "{L}+", "{L}#", "{L}-", "20 °{L}", "20 ° {L}", "5 {L}",
    "{L} 12", "{L}12",
    "vitamin {L}", "Hepatitis {L}", "Plan {L}", "Grade {L}", "the key of {L} major", "U.S.{L}.",
    "Mr. {L}. Smith wrote it",
    "J. {L}. Smith", "See appendix {L}.", "{L} dog", "The answer is in appendix {L}.", "{L} dog was seen.",
    "The answer is vitamin {L}.", "The answer: N/{L}", "The answer is 5 {L}.", "The answer is {L} dog.",
    "{L}: not mentioned", "❌ {L}", "{L} ❌", "{L}: ✗", "[ ] {L}", "☐ {L}", "{L}: 0", "{L}: false", "{L} - no",
    "{{\"{L}\": false}}", "({L}) no", "The {L} minor sonata", "{L}: nothing in the text", "I rule out {L}.",
)  # fmt: skip
VERDICTS = (
    ("{L}: {V}", "❌", "✅"), ("{V} {L}", "❌", "✅"), ("({L}) {V}", "no", "yes"), ("[{V}] {L}", " ", "x"),
    ("{L} {V}", "✗", "✓"),
    ("\"{L}\": {V}", "false", "true"), ("{L}: {V}", "0", "1"), ("{L} - {V}", "wrong", "right"),
    ("- [{V}] {L}. {T}", " ", "x"),
    ("{L}. {T}: {V}", "false", "true"), ("| {L} | {T} | {V} |", "❌", "✅"), ("{L} ({V})", "incorrect", "correct"),
    ("{L}: {V}", "0.0", "1.0"), ("{V} {L}) {T}", "☐", "☑"),
)  # fmt: skip
SEPARATORS = ("\n", ", ", "; ")


def fill(pattern: str, letter: str, other: str) -> str:
    return pattern.format(L=letter, M=other, l=letter.lower(), T=CHOICES[letter], U=CHOICES[other])


def statements(words: Words) -> Iterator[tuple[str, str]]:
    """Yield answers that state one option, and the option."""
    for letter, other in PAIRS:
        for statement in words.statements:
            stated = fill(statement, letter, other)
            for wrapping in WRAPPINGS:
                yield wrapping.format(stated), letter
            yield f"{stated}, {words.reason}.", letter
            for denial in words.denials[1:2]:
                yield f"{stated}. {fill(denial, other, letter)}.", letter
            yield f"{stated}. {words.reason.capitalize()}.", letter


def empty_answers(words: Words) -> Iterator[str]:
    """Yield answers that state no option: hedges, denials and refusals."""
    for letter, other in PAIRS:
        for pattern in (*words.hedges, *words.denials):
            for wrapping in WRAPPINGS:
                yield wrapping.format(fill(pattern, letter, other))
    for refusal in words.refusals:
        yield from (refusal, f"{refusal}.", f"{refusal}, {words.reason}.")


def verdict_lists(words: Words | None) -> Iterator[tuple[str, str]]:
    """Yield lists that judge four options, and the only accepted one."""
    forms = [("{L}: {V}", words.no, words.yes), ("({L}) {V}", words.wrong, words.right)] if words else VERDICTS
    for pattern, rejecting, accepting in forms:
        for separator in SEPARATORS:
            for right in LETTERS[:4]:
                items = [
                    pattern.format(L=letter, T=CHOICES[letter], V=accepting if letter == right else rejecting)
                    for letter in LETTERS[:4]
                ]
                yield separator.join(items), right


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_statement_is_read(language: str) -> None:
    for answer, letter in statements(LANGUAGES[language]):
        assert stated_choice(answer, CHOICES, language) == letter, answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_hedges_denials_and_refusals_state_no_option(language: str) -> None:
    for answer in empty_answers(LANGUAGES[language]):
        assert stated_choice(answer, CHOICES, language) is None, answer


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_list_of_verdicts_never_states_a_rejected_option(language: str) -> None:
    for answer, letter in verdict_lists(LANGUAGES[language]):
        assert stated_choice(answer, CHOICES, language) in (letter, None), answer


def test_lists_of_common_verdicts_state_the_accepted_option() -> None:
    four = {letter: CHOICES[letter] for letter in LETTERS[:4]}
    for answer, letter in verdict_lists(None):
        assert stated_choice(answer, four) == letter, answer


@pytest.mark.parametrize("pattern", FORMS)
def test_forms_that_state_an_option(pattern: str) -> None:
    for letter, other in PAIRS:
        assert stated_choice(fill(pattern, letter, other), CHOICES) == letter


@pytest.mark.parametrize("pattern", [*HEDGED_FORMS, *NO_OPTIONS])
def test_forms_that_state_no_option(pattern: str) -> None:
    for letter, other in PAIRS:
        assert stated_choice(fill(pattern, letter, other), CHOICES) is None


PIECES = (
    "The answer is", "Answer:", "I choose", "So", "{0}", "{1}", "({0})", "**{2}**", "\\boxed{{{0}}}", "{T0}", "{T1}",
    "or", "and", ",", ".", "\n", ";", "is correct", "is wrong", "not", "no", "yes", ":", "A dog", "I think",
    "I saw a cat.", "A cat:", "because", "❌", "✅", "[x]", "[ ]", "{0}/{1}", "{0} & {2}", "?", "{1}-{0}", "instead of",
    "{0}. {T0}", "{1}) {T1}", "Option {0}", "{1}.", "{0}: no", "{2}: yes", "{0},", "1", "5 {0}", "also",
)  # fmt: skip


@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=9),
    order=st.permutations(LETTERS),
    others=st.permutations(LETTERS),
)
def test_permuted_letters_of_choices_and_key_leave_the_score(
    pieces: list[str], order: list[str], others: list[str]
) -> None:
    """An option's letter is only a name: "A" and "I", which are words too, are read like every other letter."""
    read = []
    for letters in (order, others):
        named = dict(zip(letters, TEXTS, strict=True))
        answer = " ".join(
            piece.format(*letters, T0=TEXTS[0], T1=TEXTS[1]) if "{" in piece else piece for piece in pieces
        )
        found = stated_choice(answer, dict(sorted(named.items())))
        read.append(named[found] if found else None)
    assert read[0] == read[1]


LONG = (
    "A or ", "(A) no ", "B) ", "The answer is B or C, ", "The answer is ", "B is correct ", "答", "[ ] A ", "❌ A ",
    "1,", " ", "(", "Anna ", "B instead of ", "B, not C ", "A\n", "most likely ", "is ", "A: no\n", "B and ",
)  # fmt: skip


@pytest.mark.parametrize("unit", LONG)
def test_a_long_repetitive_answer_can_be_read(unit: str) -> None:
    assert stated_choice(f"x{unit * (20_000 // len(unit))}x", CHOICES) in (*LETTERS, None)
