"""Words around a stated option, in the languages that models answer in; see ``lbx.metrics.stated_choice``.

Each is a regular expression without groups. Words of scripts with spaces end at their letters' end; those of scripts
without may be followed by anything, e.g. a letter ("答案B").
"""

from __future__ import annotations

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
    r"(?:ال)?إجابة|(?:ال)?جواب|پاسخ|ה?תשובה|उत्तर|जवाब|উত্তর|đáp án|câu trả lời|jawaban\w*|jawapan\w*",
    "答案|答え|解答|回答|正解|答|정답|답|คำตอบ",
)
OPTION = WordForms(
    r"options?|choices?|letter|auswahl|buchstabe|opci[oó]n|opzione|opção|lettre|choix|letra|lettera|opcja|optie|"
    r"alternativ\w*|möglichkeit|vaihtoeh\w+|možnost|варіант\w*|вариант\w*|букв\w+|επιλογή|şık|seçenek|pilihan|lựa chọn|"
    r"विकल्प|বিকল্প|(?:ال)?خيار|گزینه|אפשרות",
    "选项|選項|选择|選択肢|선택지|보기|ตัวเลือก",
)
RIGHT = WordForms(
    r"correct[aeo]?s?|right|true|best|richtig\w*|korrekt\w*|bonne|juste|corrett[ao]|juist\w*|rätt|riktig\w*|oikea|"
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
    r"(?:must|should|has to|have to) be|it is|it['’]s|es ist|c['’]est|"
    r"choose|pick|select|chose|go (?:with|for)|muss|wähle|choisis|doit être|elijo|"
    r"debe ser|escolho|deve ser|scelgo|deve essere|kies|väljer|vælger|velger|wybieram|выбираю|обираю|seçiyorum|اختار|"
    r"chọn|memilih|pilih",
    "选择?(?!项)|選擇?(?![項択])|選ぶ|เลือก",
)
NOT = WordForms(
    r"not|never|no|nor|neither|cannot|\w+n['’]t|wrong|incorrect\w*|false|unlikely|but|than|except|without|ruled?|"
    r"ruling|eliminat\w+|exclud\w+|reject\w*|doubt\w*|if|whether|unless|suppos\w+|assum\w+|nicht|kein\w*|weder|falsch\w*|"
    r"ausgeschlossen|wenn|falls|ob|pas|ni|faux|fauss?e|si|fals[oa]|descart\w+|nunca|tampoco|non|né|errat\w+|sbagliat\w+|"
    r"não|nem|errad\w+|niet|geen|fout\w*|onjuist\w*|inte|ikke|ikkje|fel|feil|forkert|ei|eivät|väär\w+|nie|błędn\w+|není|"
    r"nesprávn\w+|nem|hibás|nu|greșit\w*|не|ни|ні|неверн\w+|неправильн\w+|если|якщо|грешен|δεν|λάθος|değil|yanlış|ليس\w*|"
    r"غير|لا|خاطئة?|نیست|غلط|לא|אינ\w*|שגוי\w*|नहीं|गलत|না|নয়|ভুল|không|sai|bukan|salah|tidak|tak",
    "[不非没沒无無错錯誤误否除]|ない|ません|안 |아니|아닙|틀|ไม่|ผิด|如果|若|もし",
)
"""Words that negate, exclude or suppose the statement of their sentence."""
NOT_AFTER = WordForms(
    r"değil|नहीं|না|নয়|নয়|(?:is|are|was) (?:not|wrong|incorrect|false)|isn['’]t",
    "では?な|じゃな|では?ありません|아니|아닙|不|错|錯",
)
"""Negating words after the option."""
AND = WordForms(
    r"and|or|und|oder|et|ou|y|o|e|ed|en|of|och|eller|i|lub|и|или|ve|veya|و|أو|và|hoặc|dan|atau|vs\.?",
    "[和或与及とか와과]",
)
AFTERWARDS = WordForms("because|since|as|weil|denn|da|parce|car|porque|perché|omdat|потому|है|হল", "因")
"""Words that may follow an option's letter; any other word makes the letter a word of a sentence."""
ARTICLE = WordForms("the|my|a|die|der|das|la|le|el|il|lo|o|de|den|het", "")
