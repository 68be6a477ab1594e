//! Announcements in other languages: German, French, Spanish and Russian by words, Chinese and Japanese by characters.

/// How a language with spaces announces.
struct Language {
    /// Word sequences that begin an announcement.
    openings: &'static [&'static [&'static str]],
    /// Beginnings of words that say that a tool is needed, within [`REACH`] words behind an opening.
    actions: &'static [&'static str],
    /// Verb forms that announce by themselves, as whole words …
    forms: &'static [&'static str],
    /// … where one of these stands in the sentence too; empty: always.
    adverbs: &'static [&'static str],
    /// Words anywhere in a sentence that make it an offer, a condition, a refusal or an explanation.
    none: &'static [&'static str],
}

/// Most words between opening and action; German keeps its verb for the end.
const REACH: usize = 14;

const GERMAN: Language = Language {
    openings: &[&["ich", "werde"], &["lass", "mich"], &["lassen", "sie", "mich"], &["ich", "muss"], &["werde", "ich"]],
    actions: &[
        "suchen",
        "nachsehen",
        "nachschauen",
        "nachschlagen",
        "nachzusehen",
        "prüfen",
        "überprüfen",
        "abrufen",
        "abfragen",
        "durchsuchen",
        "recherchieren",
        "herausfinden",
        "ausführen",
        "öffnen",
        "auslesen",
        "herunterladen",
        "lesen",
    ],
    forms: &["suche", "schaue", "schau", "sehe", "prüfe", "überprüfe", "rufe", "lese", "recherchiere", "durchsuche"],
    adverbs: &["jetzt", "kurz", "gleich", "schnell", "sofort", "nun", "zuerst", "zunächst", "eben", "nach"],
    none: &[
        "wenn",
        "falls",
        "sobald",
        "nicht",
        "kein",
        "keine",
        "gern",
        "gerne",
        "erklären",
        "erkläre",
        "wissen",
        "überlegen",
        "nachdenken",
        "zusammenfassen",
        "könnte",
        "würde",
        "später",
        "morgen",
        "helfen",
        "zeigen",
        "sie",
        "du",
    ],
};

const FRENCH: Language = Language {
    openings: &[
        &["je", "vais"],
        &["laissez", "moi"],
        &["laisse", "moi"],
        &["permettez", "moi", "de"],
        &["permets", "moi", "de"],
        &["je", "dois"],
    ],
    actions: &[
        "chercher",
        "rechercher",
        "vérifier",
        "consulter",
        "regarder",
        "récupérer",
        "exécuter",
        "interroger",
        "lire",
        "télécharger",
        "trouver",
    ],
    forms: &["cherche", "vérifie", "recherche", "consulte", "regarde"],
    adverbs: &["maintenant", "immédiatement", "tout"],
    none: &[
        "si",
        "quand",
        "lorsque",
        "pas",
        "expliquer",
        "savoir",
        "réfléchir",
        "résumer",
        "aider",
        "plaisir",
        "demain",
        "pourrais",
        "ravi",
        "ravie",
        "dire",
        "tu",
        "il",
        "elle",
        "on",
    ],
};

const SPANISH: Language = Language {
    openings: &[&["voy", "a"], &["déjame"], &["déjeme"], &["permíteme"], &["permítame"], &["necesito"]],
    actions: &[
        "buscar",
        "consultar",
        "verificar",
        "comprobar",
        "revisar",
        "leer",
        "ejecutar",
        "obtener",
        "averiguar",
        "descargar",
        "investigar",
    ],
    forms: &["busco", "buscaré", "consultaré", "verificaré", "comprobaré", "revisaré"],
    adverbs: &["ahora", "enseguida", "mismo", "ya", "primero"],
    none: &[
        "si",
        "cuando",
        "no",
        "explicar",
        "explicarte",
        "explicarle",
        "saber",
        "pensar",
        "resumir",
        "ayudar",
        "ayudarte",
        "gusto",
        "mañana",
        "podría",
    ],
};

const RUSSIAN: Language = Language {
    openings: &[
        &["позвольте", "мне"],
        &["позволь", "мне"],
        &["дайте", "мне"],
        &["дай", "мне"],
        &["я", "собираюсь"],
        &["я", "сейчас", "буду"],
        &["я", "буду"],
        &["мне", "нужно"],
    ],
    actions: &[
        "искать",
        "поискать",
        "найти",
        "проверить",
        "посмотреть",
        "прочитать",
        "выполнить",
        "запустить",
        "получить",
        "загрузить",
        "узнать",
    ],
    // The first person singular of these verbs is always about what the speaker will do.
    forms: &["поищу", "проверю", "посмотрю", "прочитаю", "выполню", "запущу", "запрошу", "загляну", "найду", "ищу"],
    adverbs: &[],
    none: &[
        "если",
        "когда",
        "не",
        "объяснить",
        "объясню",
        "подумать",
        "подумаю",
        "расскажу",
        "рассказать",
        "завтра",
        "позже",
        "бы",
        "рад",
        "рада",
    ],
};

/// Whether a sentence, given as its words, announces a tool in one of the languages with spaces.
pub(super) fn announces(words: &[&str]) -> bool {
    [&GERMAN, &FRENCH, &SPANISH, &RUSSIAN].into_iter().any(|language| language.announces(words))
}

impl Language {
    fn announces(&self, words: &[&str]) -> bool {
        !words.iter().any(|word| self.none.contains(word)) && (self.opens_to_action(words) || self.says_form(words))
    }

    fn opens_to_action(&self, words: &[&str]) -> bool {
        (0..words.len()).any(|at| {
            let opening = self.openings.iter().find(|opening| words[at..].starts_with(opening));
            opening.is_some_and(|opening| {
                let reached = words[at + opening.len()..].iter().take(REACH);
                reached.copied().any(|word| self.actions.iter().any(|action| word.starts_with(action)))
            })
        })
    }

    fn says_form(&self, words: &[&str]) -> bool {
        let first_person = |at: usize| {
            self.adverbs.is_empty()
                || [at.checked_sub(1), Some(at + 1)]
                    .into_iter()
                    .flatten()
                    .any(|at| matches!(words.get(at), Some(&("ich" | "je" | "yo"))))
                || words[at].ends_with("ré")
                || words[at] == "busco"
        };
        let at = words.iter().position(|word| self.forms.contains(word));
        at.is_some_and(first_person)
            && (self.adverbs.is_empty() || words.iter().any(|word| self.adverbs.contains(word)))
    }
}

/// How Chinese begins an announcement.
const CHINESE_OPENINGS: &[&str] = &[
    "让我",
    "讓我",
    "我来",
    "我來",
    "我将",
    "我將",
    "我会",
    "我會",
    "我去",
    "我先",
    "我这就",
    "我马上",
    "我现在",
    "我需要",
    "我要",
];

/// What Chinese then announces.
const CHINESE_ACTIONS: &[&str] = &[
    "搜索",
    "搜寻",
    "搜尋",
    "搜一下",
    "查一下",
    "查询",
    "查詢",
    "查找",
    "查看",
    "查查",
    "检索",
    "檢索",
    "读取",
    "讀取",
    "获取",
    "獲取",
    "执行",
    "執行",
    "运行",
    "運行",
    "检查",
    "檢查",
    "下载",
];

/// What makes a Chinese sentence something else.
const CHINESE_NONE: &[&str] = &[
    "解释",
    "解釋",
    "说明",
    "說明",
    "想想",
    "想一想",
    "总结",
    "總結",
    "知道",
    "乐意",
    "樂意",
    "如果",
    "不会",
    "不會",
    "以后",
    "以後",
    "明天",
    "之前",
];

/// Japanese endings that only a speaker about to act uses.
const JAPANESE_WILL: &[&str] = &[
    "検索してみます",
    "調べてみます",
    "確認してみます",
    "探してみます",
    "見てみます",
    "読んでみます",
    "実行してみます",
    "検索いたします",
    "確認いたします",
    "お調べします",
    "お調べいたします",
];

/// Japanese verbs that could as well describe somebody else …
const JAPANESE_ACTIONS: &[&str] =
    &["検索します", "調べます", "確認します", "探します", "取得します", "実行します", "読み込みます", "読み取ります"];

/// … unless one of these says that it is about now.
const JAPANESE_NOW: &[&str] =
    &["まず", "今から", "これから", "今すぐ", "すぐに", "少々", "ちょっと", "それでは", "では、", "ただいま", "最初に"];

/// What makes a Japanese sentence something else.
const JAPANESE_NONE: &[&str] = &["れば", "たら", "もし", "場合", "説明", "ません", "後で", "明日", "できます"];

/// Most bytes between a Chinese opening and its action: about 14 characters.
const CHINESE_REACH_BYTES: usize = 42;

/// Whether a sentence announces a tool in Chinese or Japanese.
pub(super) fn announces_in_characters(text: &str) -> bool {
    let has = |list: &[&str]| list.iter().any(|part| text.contains(part));
    let japanese = (has(JAPANESE_WILL) || (has(JAPANESE_ACTIONS) && has(JAPANESE_NOW))) && !has(JAPANESE_NONE);
    japanese || (announces_in_chinese(text) && !has(CHINESE_NONE))
}

fn announces_in_chinese(text: &str) -> bool {
    CHINESE_OPENINGS.iter().any(|opening| {
        text.match_indices(opening).any(|(at, found)| {
            let behind = &text[at + found.len()..];
            CHINESE_ACTIONS.iter().filter_map(|action| behind.find(action)).any(|gap| gap <= CHINESE_REACH_BYTES)
        })
    })
}
