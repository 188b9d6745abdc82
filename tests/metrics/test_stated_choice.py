"""Which option a free answer states: every letter alike, in many words and languages."""

from __future__ import annotations

import pytest

from lbx.benchmarks.metrics.stated_choice import stated_choice

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "Easter", "Christmas", "New Year")
CHOICES = dict(zip("ABCDEFGHIJ", DAYS, strict=True))
FOUR = {letter: CHOICES[letter] for letter in "ABCD"}

# {L} is the letter that is stated, {l} in lower case, {F} in full width, {T} and {t} its text; {M}, {N} are others
STATED = [
    "{L}", "({L})", "{L}.", "**{L}**", "### {L}", "`{L}`", "\\boxed{{{L}}}", "$\\boxed{{\\text{{{L}}}}}$",
    "<answer>{L}</answer>", "<answer>\n{L}\n</answer>", "It must be {L}.", "It must be {L} here",
    "The answer is {L}.", "The answer is {L}. I ruled out option {M}.", "Answer: {L}",
    "Answer: {L}\n\nWhy not option {M}? The text names another day.",
    "The correct answer is **{L}. {T}**.\n\nOption {M} is wrong because the text does not mention it.",
    "答案是{L}。选项{M}不对，因为文中没有提到星期一。", "{L}. {T}. Option {M} is wrong.",
    "Step 1: option {M} is wrong, no.\nStep 2: option {N}, no.\n\\boxed{{{L}}}", "Die Antwort ist {L}.",
    "Die richtige Antwort lautet {L}.", "Antwort: {L}", "La réponse est {L}.", "La bonne réponse est la {L}.",
    "Réponse : {L}", "La respuesta es {L}.", "La respuesta correcta es la {L}.", "Respuesta: {L}",
    "A resposta é {L}.", "A resposta correta é a {L}.", "La risposta è {L}.", "Risposta: {L}",
    "Het antwoord is {L}.", "Ответ: {L}", "Правильный ответ — {L}.", "Правильный ответ {L}.", "答えは{L}です。",
    "正解は{L}です。", "答え：{L}", "정답은 {L}입니다.", "정답: {L}", "الإجابة هي {L}", "الإجابة الصحيحة هي {L}.",
    "Odpowiedź: {L}", "Poprawna odpowiedź to {L}.", "Doğru cevap {L}.", "Cevap: {L}", "Đáp án là {L}.",
    "Đáp án đúng là {L}.", "Jawabannya adalah {L}.", "Jawaban: {L}", "उत्तर {L} है", "सही उत्तर है {L}",
    "คำตอบคือ {L}", "Svaret är {L}.", "Svar: {L}", "Odpověď: {L}", "Es muss {L} sein.", "Debe ser {L}.", "选{L}",
    "故选{L}。", "选择{L}", "答案：（{L}）", "正确答案为{L}", "应选{L}项。", "答案应该是{L}。", "{L} is correct.",
    "{L} is the correct answer. {M} is wrong.", "Option {L} is correct; option {M} is wrong.", "{L}正确，{M}错误。",
    "Option {L} is the right choice.", "I choose ({L}), surely", "I would go with {L}.", "So, {L}.",
    "Therefore, ({L}) {T}.", "Based on the passage, the boat comes on ({L}) {T}.", "not {M}, the answer is {L}",
    "The answer is not {M}. The answer is {L}.",
    "First I thought it was Monday. The answer might be {M}. But no. The answer is {L}.",
    "Hm. So the answer is {M}. Wait, no. So the answer is {L}.", "The answer is option {L}.",
    "The answer is most likely {L}.", "The answer to the question is therefore {L} because of the text",
    "{{\"answer\": \"{L}\"}}", "answer: {l}", "({l})", "{l}", "\\boxed{{{l}}}", "Final answer: {L}",
    "The answer: {L}, as the text says.", "{L}: {T}", "{L} - {T}", "{L}) {T}", "Reasoning goes here.\n\n{L}",
    "Reasoning goes here.\n\n**{L}. {T}**", "A. Monday\nB. Tuesday\nC. Wednesday\nD. Thursday\n\nThe answer is {L}.",
    "A. Monday\nB. Tuesday\nC. Wednesday\nD. Thursday\n\n{L}", "{T}", "The answer is {T}.", "the answer is {t}",
    "Answer: {T}", "{T}\n\nThe text says so.", "{L} because the text says so", "{L}. {T}\nOption {M} is not right.",
    "[[{L}]]", "Answer: [{L}]", "My answer is {L}", "The final answer is $\\boxed{{{L}}}$.",
    "The best option is {L}.", "Correct option: {L}", "La opción correcta es {L}.", "L'option correcte est {L}.",
    "Правильный вариант {L}.", "Answer {L}.", "Answer\n{L}", "**Answer:** {L}", "**Answer**: **{L}**",
    "## Answer\n\n{L}. {T}", "The answer is (**{L}**).", "Let me think.\nFrom the text it is {T}.\nSo it's {L}.",
    "{F}",
]  # fmt: skip
NOT_STATED = [
    "either (A) or (B)", "The answer is B or C.", "The answer is either B or C", "Answer: A, B",
    "The answer is A/B.", "B. Monday", "The answer is B. Monday", "The answer is not B.", "The answer isn't B.",
    "Die Antwort ist nicht B.", "答案不是B。", "答えはBではない。", "정답은 B가 아닙니다.", "La respuesta no es B.",
    "I ruled out option C.", "Option C is wrong.", "Is the answer B?", "I don't think the answer is B.",
    "A dog is what I see", "B dog is what I see", "Answer: A dog", "Answer: B dog", "", "Because",
    "B\n\nQuestion: Which day?\nAnswer: C", "Answer: B\n\nQuestion: x?\nAnswer: C",
    "The answer is B. Wait, the answer is C.", "A. Monday\nB. Tuesday\nC. Wednesday\nD. Thursday",
    "If the answer is B, fine.", "不选B", "Svaret er ikke B.", "A. no\nB. yes\nC. no",
    "The answer is neither A nor B.", "Not B.", "none of them", "Options: A, B, C, D",
]  # fmt: skip
PARAGRAPHS = [
    "Okay, so I need to figure out which day. The document says Tuesdays. Option A says Monday, which is not right. "
    "Option B says Tuesday. That matches. So the answer is B.",
    "B. Tuesday\n\nExplanation: The document states it... Therefore, option B is the correct answer.",
    "Answer: (B) because the boat comes on Tuesday, not (A) Monday.",
    "**Final Answer**\n\\boxed{B}",
    "Final Answer: The final answer is B. I hope it is correct.",
    "The correct answer is:\n\n**(B)** Tuesday",
    "本题选择B选项。",
    "根据文章，正确答案是 B. Tuesday。",
    "I would not choose A. I'd choose B.",
]


@pytest.mark.parametrize("words", STATED)
def test_a_stated_option_counts_and_all_letters_are_alike(words: str) -> None:
    letters = "".join(FOUR if "A. Monday" in words else CHOICES)
    for place, letter in enumerate(letters):
        others = letters[place + 1 :] + letters[:place]
        full_width = chr(ord(letter) + 0xFEE0)
        answer = words.format(
            L=letter,
            l=letter.lower(),
            F=full_width,
            T=CHOICES[letter],
            t=CHOICES[letter].lower(),
            M=others[0],
            N=others[1],
        )
        assert stated_choice(answer, {one: CHOICES[one] for one in letters}) == letter, answer


@pytest.mark.parametrize("answer", NOT_STATED)
def test_what_can_be_read_in_two_ways_or_is_denied_states_no_option(answer: str) -> None:
    assert stated_choice(answer, FOUR) is None


@pytest.mark.parametrize("answer", PARAGRAPHS)
def test_a_statement_is_found_in_a_long_answer(answer: str) -> None:
    assert stated_choice(answer, FOUR) == "B"


@pytest.mark.parametrize(
    ("options", "answer", "letter"),
    [
        (("Vitamin B", "Vitamin A", "none of the above"), "Vitamin A", "B"),
        (("Vitamin B", "Vitamin A", "none of the above"), "The answer is vitamin A.", "B"),
        (("Vitamin B", "Vitamin A", "none of the above"), "The text mentions vitamin A.", None),
        (("Vitamin B", "Vitamin A", "none of the above"), "The answer is none of the above.", "C"),
        (("1", "2", "10", "12"), "The answer is 12.", "D"),
        (("1", "2", "10", "12"), "B. 10", None),
        (("J. Doe", "A. Smith"), "The answer is A. Smith.", "B"),
        (("J. Doe", "A. Smith"), "A. J. Doe", "A"),
        (("B", "A"), "B", "B"),
        (("x", "y", "y"), "y", None),
        ((), "A", None),
    ],
)
def test_an_options_text_stands_for_its_letter(options: tuple[str, ...], answer: str, letter: str | None) -> None:
    assert stated_choice(answer, dict(zip("ABCD", options, strict=False))) == letter


def test_the_last_statement_counts_unless_the_first_sentence_is_another() -> None:
    assert stated_choice("Hm. The answer is B. Wait, the answer is C.", FOUR) == "C"
    assert stated_choice("The answer is B. Wait, the answer is C.", FOUR) is None
    assert stated_choice("The answer is B. Wait, the answer is C. No, the answer is B.", FOUR) == "B"
    assert stated_choice("Let us see. \\boxed{B} Or rather: \\boxed{C}", FOUR) == "C"


def test_mentions_count_only_in_a_language_whose_negations_are_known() -> None:
    assert stated_choice("Ich würde B sagen: B.", FOUR, "de") == "B"
    assert stated_choice("Ez B.", FOUR, "xx") is None
    assert stated_choice("B", FOUR, "xx") == "B"


def test_cues_of_a_task_announce_options() -> None:
    assert stated_choice("Ne A. Respondo estas I, ĉar", CHOICES, "eo") is None
    assert stated_choice("Ne A. Respondo estas I, ĉar", CHOICES, "eo", ["respondo estas"]) == "I"
    assert stated_choice("Ne A. Respondo estas Easter.", CHOICES, "eo", ["respondo estas"]) == "H"
    assert stated_choice("a.b* B", FOUR, "eo", ["a.b*", " "]) == "B"
