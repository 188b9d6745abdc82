"""Answers written by hand as models write them, with the option that a reader finds in them."""

from __future__ import annotations

import pytest

from lbx.benchmarks.metrics.stated_choice import stated_choice

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday")
STATED = [
    "Let me go through the passage step by step. The harbour master says Tuesday. Therefore the correct option is B.",
    "| Option | Verdict |\n|---|---|\n| A | wrong |\n| B | correct |\n| C | wrong |\n\n**Answer: B**",
    "{\"reasoning\": \"the boat is weekly\", \"answer\": \"B\"}", "{\"answer\": \"B\", \"confidence\": 0.9}",
    "$$\\boxed{\\text{B}}$$", "Option B: Tuesday", "B) Tuesday", "**B**", "Correct: B", "选B",
    "\u56e0\u6b64\uff0c\u6b63\u786e\u9009\u9879\u662fB\u3002", "الإجابة الصحيحة هي B",
    "Die richtige Antwort ist B, weil das Boot dienstags kommt.", "Answer: B (Tuesday)",
    "The answer is **B) Tuesday**.", "Final answer: **(B)**", "So the answer is B, not C.",
    "The answer is B rather than C.", "I'd go with B.", "I would say B.", "I think it's B.", "I think B.",
    "My answer would be B.", "It is B, because A is not mentioned.",
    "Answer: B\n\nExplanation: Option A is incorrect, as is option C.",
    "B. Tuesday\n\nThe other options (A, C and D) are not mentioned.", "Probably B.", "Thus, B.", "B!", "> B", "- B",
    "b)", "The correct answer is:\n\nB", "<think>A or C?</think>\n<answer>B</answer>",
    "The best answer is (B) Tuesday. While A and C are tempting, the text rules them out.",
    "B is the right answer, since A and C are out.", "Tuesday.", "Tuesday, at noon.", "Tuesday is correct.", "✅ B",
    "It's B — Tuesday.", "正解はBです。Aは本文にありません。", "정답은 B입니다. A는 틀렸습니다.",
    "Ответ: B, потому что лодка приходит во вторник.",
    "A resposta correta é B, porque o barco chega na terça.", "La bonne réponse est B car le bateau arrive mardi.",
    "A passage about boats is given. The answer is B.", "The answer is definitely B",
    "❌ A. Monday\n✅ B. Tuesday\n❌ C. Wednesday\n❌ D. Thursday",
    "A. Monday ❌\nB. Tuesday ✅\nC. Wednesday ❌\nD. Thursday ❌", "B instead of C.", "B, rather than C",
    "I choose B over C.", "Tuesday (B)",
    "Options:\n\n**A. Monday** - No.\n**B. Tuesday** - Yes.\n**C. Wednesday** - No.\n\nThe correct answer is **B**.",
    "Answer: B\nReason: A and C are wrong.", "B\n\nExplanation: The passage says so, unlike A.",
    "It's definitely option B, no doubt.", "The only correct option is B.", "The answer that best fits is B.",
    "Out of A, B, C and D, the answer is B.", "Choice B is the best answer.", "My final answer: B.", "[B]",
    "(B) Tuesday, not (A) Monday.", "B.\n\nA is wrong; C is wrong; D is wrong.",
    "B. Tuesday. A and C are not mentioned.", "The answer is B. A, C and D are wrong.",
    "The answer is B (A and C are wrong).", "Die Antwort lautet B. Die anderen Optionen (A, C, D) sind falsch.",
    "The answer is B since A is out and C is out.", "The correct answer is option B, Tuesday.",
    "The correct answer is B, i.e. Tuesday.", "\u6b63\u786e\u7b54\u6848\u662fB\uff0c\u800c\u4e0d\u662fC\u3002",
    "\u7b54\u6848\u662fB\uff0cA\u548cC\u90fd\u4e0d\u5bf9\u3002",
    "**Answer: (B) Tuesday**\n\nWhile A, C might be plausible, they are not supported.", "[X] B", "☑ B",
]  # fmt: skip
"""Answers that state Tuesday, B."""
NOT_STATED = [
    "I'm torn between B and C.", "I am torn between (B) and (C).", "B, maybe C.", "B or maybe C", "Either B or C.",
    "The answer is B or possibly C.", "The answer is B, or C.", "The answer is B (or C).", "B and C", "B + C",
    "B, C", "B|C", "B; C", "B\nC", "B - C", "A to C", "A-C", "Both (B) and (C) could be right.",
    "All of A, B and C.", "Any of A-D", "The answer is B; C is also possible.",
    "The answer could be B, but C is equally likely.", "Monday or Tuesday", "The answer is Monday or Tuesday.",
    "Answer: Monday, Tuesday", "Tuesday and Wednesday are both correct.", "It cannot be determined from the text.",
    "Cannot be determined.", "None of the above", "None of A, B, C or D.", "N/A", "n/a",
    "N/A - the text does not say.", "Not applicable (N/A).", "I don't know.", "I cannot answer: A is unclear.",
    "It was 20 °C.", "It was 20 ℃ outside.", "25° C", "It was 68 F, or 20 C.", "vitamin D", "Vitamin B12",
    "Vitamin B 12", "hepatitis A", "Grade: A+", "A+", "A-", "B-", "He got an A in maths.", "Plan B",
    "The answer is Plan B.", "It is in C major.", "The key of C minor.", "C#", "C++", "F# and C#", "U.S.A",
    "Washington D.C.", "D.C.", "J. B. Smith", "By J. B. Smith.", "See appendix C.", "The answer is in appendix C.",
    "The answer is on page 5 B.", "Q&A", "R&D", "B&B", "AT&T", "A/C", "A/B test", "C/D", "type A blood",
    "The answer is A Christmas Carol.", "The answer is A dog.", "A dog", "A is wrong.", "A: wrong", "A - no",
    "A (false)", "not A", "A ❌", "A: ✗", "✘ A", "☐ A", "[ ] A", "A: no\nB: no\nC: no\nD: no",
    "A. Monday B. Tuesday C. Wednesday D. Thursday", "A) Monday, B) Tuesday, C) Wednesday, D) Thursday",
    "(A) Monday (B) Tuesday", "A: 0.25, B: 0.25, C: 0.25, D: 0.25", "Options: A) Monday B) Tuesday",
    "Which one is it, A or B?", "Is it B?", "B?", "If B, then C.", "Maybe A? Maybe B?", "B > C > A > D", "B = C",
    "A vs. B", "A versus B", "The worst answer is B.", "The incorrect option is B.",
    "The least plausible option is B.", "Every answer but B is right.", "All except B.", "Anything other than B.",
    "Tuesday (C)", "C. Tuesday", "The answer is C (Tuesday).", "The answer is Tuesday (C).", "Answer: C) Tuesday",
    "Not Tuesday.", "I am not sure whether it is B.", "B或C", "B或者C", "BかC", "B 또는 C", "B и C", "B oder C",
    "B ou C", "B o C", "A y B", "أو A B", "B veya C", "B hoặc C", "B atau C", "B lub C", "Either of B/C",
    "The answer is B and C.", "The answers are B, C and D.", "Neither.", "A. and B.", "<answer>B, C</answer>",
    "{\"answer\": [\"B\", \"C\"]}", "\\boxed{B, C}", "\\boxed{B \\text{ or } C}", "\\boxed{B} or \\boxed{C}",
    "I rule out A.", "A can be excluded.", "The only wrong option is D.", "5 A", "A 5", "10 A",
    "The current is 5 A.", "The fuse is rated 13 A.", "It weighs 5 C.",
    "The text talks about vitamin C and hepatitis B.", "I got a B in school", "Type B.", "Blood group A", "Gruppe A",
    "维生素C", "ビタミンC", "乙肝B型", "The answer: not available (N/A)", "Answer: N/A.", "n. a.", "N.A.", "Not A.",
    "Answer: None", "P&C", "Arts & Crafts (A&C)", "M&A", "B2B", "5°C", "-3 °C", "about 20 degrees C.", "20 deg C",
    "20 C", "3 A", "3.5 A", "C/C++", "Objective-C", "written in C.", "DVD-A", "Exhibit A", "Figure B.",
    "Team A won.", "Room B", "Gate C.", "Class A", "☒ A ☐ B", "A) false B) false C) false D) false",
    "A: yes\nB: yes", "A: unlikely", "A: does not match", "A: impossible", "A: incorrect.", "Not (A).",
    "Definitely not A.", "A? No.", "Wrong: A", "A — rejected", "A was ruled out.", "I eliminated A, B and D.",
    "A: the text contradicts this", "A: unsupported", "A: nope", "🚫 A", "⛔ A", "A (✗)", "A: x", "A: N", "A: F",
    "A: absent", "A = false", "A → no", "A => false", "B, C or D", "B et/ou C", "B respectively C", "B resp. C",
    "B plus C", "B with C", "B, followed by C", "first B, then C", "between B and C",
    "B if the text is right, otherwise C", "It could be B. It could also be C.",
    "The answer is B. Alternatively, C.", "Options B and C", "The answers are B and C.", "B, possibly C", "B∨C",
    "B ∪ C", "{B, C}", "[B, C]", "B\\C", "B·C", "B\u2013D", "A bis C", "B\uff0cC", "B、C", "B/C/D", "BC", "B,C",
    "Answer: B C", "Answer: BC", "Answer: B\nC", "Answer: B\nAnswer: C", "**B** / **C**", "I choose B or C.",
    "I'd go with B or C", "My guess: B or C", "The correct answer is either (B) or (C).",
    "The answer is B and/or C.", "It's B/C.", "It must be B or C.", "Antwort: B oder C", "Réponse : B ou C",
    "Respuesta: B o C", "답: B 또는 C", "答案：B或C", "答案：B/C", "Answer: B or Wednesday", "Answer: Tuesday or C",
    "Tuesday and/or Wednesday", "Tuesday/Wednesday", "Tuesday - Wednesday", "Tuesday, or Wednesday.",
    "Tuesday, maybe Wednesday.", "Either Tuesday or Wednesday.", "It is Tuesday or Wednesday.",
    "The least likely answer is B.", "The least likely is B.", "Least likely: B", "The most unlikely option is B.",
    "The worst choice is B", "Monday (B)", "Monday: B", "Monday [B]", "**Monday** (B)", "The answer is Monday (B).",
    "The answer is (B) Monday.", "B (Monday)", "B: Monday", "Answer: B - Monday", "B, Monday", "Monday, B",
    "Monday - B", "Solution: B or C", "The right option would be either B or C", "I would choose between B and C",
    "B.C.", "44 B.C.", "A.D. 79", "79 A.D.", "C.D.", "500 B", "10 kΩ, 5 A", "12 V / 5 A", "a 5-A fuse", "5-A",
    "pH 7, 37 °C", "37 ° C", "98.6°F (37°C)", "37 º C", "37ºC", "C4", "B-52", "B 52", "A380", "B♭",
    "C♯ minor", "B flat", "A flat", "Symphony in C", "D Major", "H&M", "D&D", "A & E", "A&B", "C & A", "R & B",
    "B & B", "B+B", "N/A (not applicable)", "[N/A]", "\\boxed{N/A}", "<answer>N/A</answer>", "N／A", "N⁄A", "N∕A",
    "The answer is N/A.", "Option: N/A", "S.O.S. A", "[0, 1, 0, 0]", "A: ruled out", "A: eliminated",
    "A (ruled out)", "A: no evidence", "A: contradicted", "A: 0", "A: 0.0", "A - 0", "A: none", "A: No.", "A: ❎",
]  # fmt: skip
NOT_WRONG = [
    "A) ✗ B) ✓ C) ✗ D) ✗", "A ✗ | B ✓ | C ✗ | D ✗", "A=0, B=1, C=0, D=0", "A: No. B: Yes. C: No. D: No.",
    "A - No\nB - Yes\nC - No\nD - No",
    "Option A: incorrect\nOption B: correct\nOption C: incorrect\nOption D: incorrect",
    "A. Monday \u2013 No\nB. Tuesday \u2013 Yes\nC. Wednesday \u2013 No\nD. Thursday \u2013 No",
    "A: false\nB: true\nC: false\nD: false", "A is incorrect. B is correct. C is incorrect. D is incorrect.",
    "- [ ] A\n- [x] B\n- [ ] C\n- [ ] D", "☐ A ☑ B ☐ C ☐ D",
    "A: not supported\nB: supported\nC: not supported\nD: not supported", "A: 10%, B: 80%, C: 5%, D: 5%",
    "{\"A\": 0, \"B\": 1}", "A: F, B: T, C: F, D: F", "A: N, B: Y, C: N, D: N",
    "A: ❌ Monday is not mentioned.\nB: ✅ Tuesday is mentioned.\nC: ❌\nD: ❌", "~~A~~ B", "A 👎 B 👍",
    "B (but C is close)", "B, though C is possible", "B and not C", "B but not C", "I prefer B over C.",
    "I prefer B to C.", "B beats C.", "B is better than C.", "C is not as good as B.",
    "The second best answer is B.", "The distractor is B.", "The answer is B. See also C.",
    "The answer is B, which I found in section C.", "Among the options A, B, C, and D, B is correct.", "Answer = B",
    "answer is (b)", "Verdict: B", "(A) false (B) true (C) false (D) false", "A false B true C false D false",
    "A→❌, B→✅", "❌A ✅B ❌C ❌D", "A❌B✅C❌D❌", "(A) ✘ (B) ✔ (C) ✘ (D) ✘", "A - ✗\nB - ✓",
    "A: No - not mentioned\nB: Yes - mentioned\nC: No - not mentioned",
    "A: No, the text says otherwise.\nB: Yes, the text says so.",
    "A. Incorrect. B. Correct. C. Incorrect. D. Incorrect.", "true: B, false: A, C, D", "False: A. True: B.",
    "Yes: B\nNo: A, C, D", "A=F B=T C=F D=F", "{'A': False, 'B': True, 'C': False, 'D': False}",
    "A: 0%, B: 100%, C: 0%, D: 0%", "A (0), B (1), C (0), D (0)", "A - 0\nB - 1", "A:0 B:1 C:0 D:0",
    "A: 0/10\nB: 9/10\nC: 2/10\nD: 1/10", "A: low, B: high", "A: rejected\nB: accepted",
]  # fmt: skip
"""Answers in which a reader may find Tuesday, B, but no other option."""
LANGUAGES: dict[str, dict[str | None, list[str]]] = {
    "sv": {
        "B": ["Svar: B", "Svaret är B, inte C.", "Jag väljer B."],
        None: ["Svaret är B eller C.", "B eller C", "Svaret är inte B.", "A: nej"],
    },
    "fi": {
        "B": ["Vastaus on B."],
        None: ["B tai C", "Vastaus on B tai C.", "Vastaus ei ole B."],
    },
    "hu": {
        "B": ["A helyes válasz: B"],
        None: ["A válasz B vagy C.", "B vagy C"],
    },
    "el": {
        "B": ["Η απάντηση είναι B."],
        None: ["B ή C", "Η απάντηση είναι B ή C.", "Η απάντηση δεν είναι B."],
    },
    "cs": {
        "B": ["Odpověď: B"],
        None: ["B nebo C", "Odpověď je B nebo C."],
    },
    "ro": {
        "B": ["Răspunsul este B."],
        None: ["B sau C", "Răspunsul este B sau C."],
    },
    "he": {
        "B": ["התשובה היא B."],
        None: ["B או C", "התשובה היא B או C", "התשובה אינה B."],
    },
    "fa": {
        "B": ["پاسخ B است"],
        None: ["B یا C", "پاسخ B یا C است"],
    },
    "th": {
        "B": ["คำตอบคือ B"],
        None: ["B หรือ C", "คำตอบคือ B หรือ C", "คำตอบไม่ใช่ B"],
    },
    "vi": {
        "B": ["Đáp án là B."],
        None: ["B hoặc C", "Đáp án là B hoặc C.", "Đáp án không phải là B."],
    },
    "id": {
        "B": ["Jawabannya adalah B."],
        None: ["Jawabannya B atau C.", "Jawabannya bukan B."],
    },
    "bn": {
        "B": ["উত্তর: B"],
        None: ["B অথবা C"],
    },
    "uk": {
        "B": ["Відповідь: B"],
        None: ["B чи C", "Відповідь: B або C"],
    },
    "fr": {
        None: ["C'est la vie", "D'accord", "L'A", "A: non"],
    },
    "de": {
        None: ["A: nein"],
    },
    "ru": {
        None: ["A: нет"],
    },
    "zh": {
        None: ["A：否"],
    },
    "ja": {
        None: ["A: いいえ"],
    },
    "ko": {
        None: ["A: 아니요"],
    },
    "tr": {
        None: ["A: hayır"],
    },
    "ar": {
        None: ["A: لا"],
    },
    "hi": {
        None: ["A: नहीं"],
    },
    "pl": {
        None: ["A: nie"],
    },
    "nl": {
        None: ["A: nee"],
    },
    "it": {
        None: ["A: falso"],
    },
}  # fmt: skip
OPTION_TEXTS: dict[tuple[str, ...], dict[str | None, list[str]]] = {
    ("1", "10", "100", "1000"): {
        "B": [
            "The answer is 10\u2063", "The answer is 10.",
        ],
        "D": [
            "1,000", "The answer is 1000.", "The answer is $1,000$.", "\\boxed{1{,}000}", "\\boxed{1\\,000}",
        ],
        None: [
            "The answer is 1.000.", "1 000", "1000 boats", "10,5", "The answer is 10 thousand.", "10 000", "10,000",
            "The answer is 10,000.", "About 1,000 people.", "The answer is 1,000,000.", "1'000",
            "The answer is 100%.", "1e3", "10²", "10^2", "The answer is 1-10.", "1 to 10", "between 1 and 10",
            "The answer is between 10 and 100.", "The answer is 10 or 100.", "It is 10 or 100",
            "The answer is 10,100", "The answer is more than 10.",
        ],
    },
    ("1", "2", "3", "10"): {
        "B": [
            "2.", "The answer is 2. ", "2", "The answer is 2 boats.", "2, because", "B. 2", "B. 2.5",
            "The answer is (2).",
        ],
        None: [
            "2/3", "The answer is 3rd", "The answer is 2,5.", "-2", "\u22122", "The answer is 3.14",
            "The answer is .3", "The answer is 0.1", "The answer is 2°C", "The answer is 2 °",
            "The answer is 10:30.", "The answer is 3x10^8", "2×10", "It is 2½.", "The answer is 2-1.",
            "The answer is 1\u20132.", "The answer is v2.", "The answer is #2.", "The answer is 2_3",
            "1. First, I read the text.\n2. Then I count.", "The answer is 2024.", "The answer is 2\u202f000.",
            "The answer is 2\u00a0000.", "The answer is 3/10.", "Answer: 3 / 10",
        ],
    },
    ("Yes", "No"): {
        "A": [
            "Yes", "Yes!", "yes.", "**Yes**, it does.", "The answer is yes, it does.", "Yes: the boat comes.",
            "Yes\n\nThe text says so.", "I would say yes.", "A. Yes", "Yes — it does.",
        ],
        "B": [
            "No \u2013 it doesn't.", "No; the text says otherwise.", "Answer: No.", "No.",
        ],
        None: [
            "Yes or no", "Yes and no.", "Yes, no, maybe.", "Yes/No", "No idea.", "Not sure.", "Nothing is said.",
            "Yesterday, it came.", "B. Yes", "A: no, B: yes", "Yes, but the answer is no.",
            "No information is given.", "It is not clear.", "Yes?", "Yes it does.", "No it does not.",
        ],
    },
    ("True", "False", "Not given"): {
        "A": [
            "True.", "The statement is true.", "TRUE", "True, since the text says it.",
            "I think the statement is true.",
        ],
        "B": [
            "False: it brings no oil.", "False. It is not true that the boat comes.", "The claim is false.",
        ],
        "C": [
            "Not given", "The statement is not given in the text.",
            "Not given, because it is not true that the text says it is false.",
        ],
        None: [
            "This is false.", "True or false?", "Not true.", "It is not true.", "The statement is not false.",
            "Neither true nor false.", "True - False is wrong here.",
        ],
    },
    ("The boat", "The ferry", "Both A and B", "Neither A nor B"): {
        "A": [
            "A. The boat", "The answer is A",
        ],
        "C": [
            "Both A and B are correct.", "Both A and B", "The answer is Both A and B.", "C. Both A and B",
            "Both A and B are correct. Therefore, the answer is C.", "both A and B",
        ],
        "D": [
            "Neither A nor B is correct.",
        ],
        None: [
            "A and B are both correct, so C.", "A and B are correct.",
        ],
    },
    ("Red", "Green", "All of the above", "None of the above"): {
        "A": [
            "Red",
        ],
        "C": [
            "All of the above.", "All of the above are correct.", "The answer is all of the above.",
        ],
        "D": [
            "None of the above", "None of the above is correct.",
        ],
        None: [
            "Red and green", "Red, green",
        ],
    },
}  # fmt: skip
"""Answers by the texts of the options, and by the letter that they state."""


@pytest.mark.parametrize("answer", STATED)
def test_stated_option(answer: str) -> None:
    assert stated_choice(answer, dict(zip("ABCD", DAYS, strict=True))) == "B"


@pytest.mark.parametrize("answer", NOT_STATED)
def test_answer_without_an_option(answer: str) -> None:
    assert stated_choice(answer, dict(zip("ABCD", DAYS, strict=True))) is None


@pytest.mark.parametrize("answer", NOT_WRONG)
def test_answer_that_may_state_one_option(answer: str) -> None:
    assert stated_choice(answer, dict(zip("ABCD", DAYS, strict=True))) in ("B", None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages(language: str) -> None:
    for letter, answers in LANGUAGES[language].items():
        for answer in answers:
            assert stated_choice(answer, dict(zip("ABCD", DAYS, strict=True)), language) == letter, answer


@pytest.mark.parametrize("texts", OPTION_TEXTS)
def test_options_by_their_texts(texts: tuple[str, ...]) -> None:
    choices = dict(zip("ABCD", texts, strict=False))
    for letter, answers in OPTION_TEXTS[texts].items():
        for answer in answers:
            assert stated_choice(answer, choices) == letter, answer
