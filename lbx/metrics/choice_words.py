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
"""Words that only suppose what their sentence says, or compare it."""
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
"""Other words that may follow an option's letter; any further word makes the letter a word of a sentence."""
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
