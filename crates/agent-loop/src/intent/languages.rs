//! Detects announcements of tool use in other languages: German, French, Spanish and Russian by words, Chinese and
//! Japanese by characters.

use super::words::{Phrases, Words, phrases, words};

/// The announcements of a language with spaces.
struct Language {
    /// Word sequences that begin an announcement.
    openings: Phrases,
    /// Beginnings of words for an action that needs a tool. One must follow an opening within [`REACH`] words.
    actions: Words,
    /// Verb forms that announce without an opening, as whole words.
    forms: Words,
    /// One of these must be in the same sentence as the form. Empty: no adverb is needed.
    adverbs: Words,
    /// One of these must be beside the form. Empty: the form itself is in the first person.
    pronouns: Words,
    /// Words that make a sentence an offer, a condition, a refusal or an explanation, wherever they are in it.
    none: Words,
}

/// Most words between opening and action. German puts the verb at the end.
const REACH: usize = 14;

const GERMAN: Language = Language {
    openings: phrases!("ich werde | lass mich | lassen sie mich | ich muss | werde ich"),
    actions: words!(
        "suchen nachsehen nachschauen nachschlagen nachzusehen prüfen überprüfen abrufen abfragen durchsuchen \
         recherchieren herausfinden ausführen öffnen auslesen herunterladen lesen"
    ),
    forms: words!("suche schaue schau sehe prüfe überprüfe rufe lese recherchiere durchsuche"),
    adverbs: words!("jetzt kurz gleich schnell sofort nun zuerst zunächst eben nach"),
    pronouns: words!("ich"),
    none: words!(
        "wenn falls sobald nicht kein keine gern gerne erklären erkläre wissen überlegen nachdenken \
         zusammenfassen könnte würde später morgen helfen zeigen"
    ),
};

const FRENCH: Language = Language {
    openings: phrases!("je vais | laissez moi | laisse moi | permettez moi de | permets moi de | je dois"),
    actions: words!(
        "chercher rechercher vérifier consulter regarder récupérer exécuter interroger lire télécharger \
         trouver"
    ),
    forms: words!("cherche vérifie recherche consulte regarde"),
    adverbs: words!("maintenant immédiatement tout"),
    pronouns: words!("je"),
    none: words!(
        "si quand lorsque pas expliquer savoir réfléchir résumer aider plaisir demain pourrais ravi ravie \
         dire"
    ),
};

const SPANISH: Language = Language {
    openings: phrases!("voy a | déjame | déjeme | permíteme | permítame | necesito"),
    actions: words!(
        "buscar consultar verificar comprobar revisar leer ejecutar obtener averiguar descargar investigar"
    ),
    forms: words!("busco buscaré consultaré verificaré comprobaré revisaré"),
    adverbs: words!("ahora enseguida mismo ya primero"),
    pronouns: Words(&[]),
    none: words!(
        "si cuando no explicar explicarte explicarle saber pensar resumir ayudar ayudarte gusto mañana podría"
    ),
};

const RUSSIAN: Language = Language {
    openings: phrases!(
        "позвольте мне | позволь мне | дайте мне | дай мне | я собираюсь | я сейчас буду | я буду | мне нужно"
    ),
    actions: words!(
        "искать поискать найти проверить посмотреть прочитать выполнить запустить получить загрузить узнать"
    ),
    // The first person singular of these verbs always says what the speaker will do.
    forms: words!("поищу проверю посмотрю прочитаю выполню запущу запрошу загляну найду ищу"),
    adverbs: Words(&[]),
    pronouns: Words(&[]),
    none: words!("если когда не объяснить объясню подумать подумаю расскажу рассказать завтра позже бы рад рада"),
};

/// Whether a sentence, given as its words, announces a tool in one of the languages with spaces.
pub(super) fn announces(words: &[&str]) -> bool {
    [&GERMAN, &FRENCH, &SPANISH, &RUSSIAN].into_iter().any(|language| language.announces(words))
}

impl Language {
    fn announces(&self, words: &[&str]) -> bool {
        (self.opens_to_action(words) || self.says_form(words)) && !self.none.has_any(words)
    }

    fn opens_to_action(&self, words: &[&str]) -> bool {
        let acts = |word: &&str| self.actions.iter().any(|action| word.starts_with(action));
        (0..words.len())
            .filter_map(|at| self.openings.strip(&words[at..]))
            .any(|behind| behind.iter().take(REACH).any(acts))
    }

    fn says_form(&self, words: &[&str]) -> bool {
        let Some(at) = words.iter().position(|word| self.forms.has(word)) else { return false };
        let beside = &words[at.saturating_sub(1)..words.len().min(at + 2)];
        (self.pronouns.0.is_empty() || self.pronouns.has_any(beside))
            && (self.adverbs.0.is_empty() || self.adverbs.has_any(words))
    }
}

/// Phrases that begin an announcement in Chinese.
const CHINESE_OPENINGS: Words =
    words!("让我 讓我 我来 我來 我将 我將 我会 我會 我去 我先 我这就 我马上 我现在 我需要 我要");

/// Actions in Chinese.
const CHINESE_ACTIONS: Words = words!(
    "搜索 搜寻 搜尋 搜一下 查一下 查询 查詢 查找 查看 查查 检索 檢索 读取 讀取 获取 獲取 \
     执行 執行 运行 運行 检查 檢查 下载"
);

/// Words that make a Chinese sentence something other than an announcement.
const CHINESE_NONE: Words = words!(
    "解释 解釋 说明 說明 想想 想一想 总结 總結 知道 乐意 樂意 如果 不会 不會 以后 以後 \
     明天 之前"
);

/// Japanese verb endings that only a speaker who is about to act uses.
const JAPANESE_WILL: Words = words!(
    "検索してみます 調べてみます 確認してみます 探してみます 見てみます 読んでみます 実行してみます \
     検索いたします 確認いたします お調べします お調べいたします"
);

/// Japanese verbs that may also describe another person. They need a word of [`JAPANESE_NOW`].
const JAPANESE_ACTIONS: Words =
    words!("検索します 調べます 確認します 探します 取得します 実行します 読み込みます 読み取ります");

/// Japanese words that say that the action happens now.
const JAPANESE_NOW: Words = words!("まず 今から これから 今すぐ すぐに 少々 ちょっと それでは では、 ただいま 最初に");

/// Words that make a Japanese sentence something other than an announcement.
const JAPANESE_NONE: Words = words!("れば たら もし 場合 説明 ません 後で 明日 できます");

/// Most characters between a Chinese opening and the end of its action.
const CHINESE_REACH: usize = 16;

/// Whether a sentence announces a tool in Chinese or Japanese.
pub(super) fn announces_in_characters(text: &str) -> bool {
    let has = |list: Words| list.iter().any(|part| text.contains(part));
    let japanese = (has(JAPANESE_WILL) || (has(JAPANESE_ACTIONS) && has(JAPANESE_NOW))) && !has(JAPANESE_NONE);
    japanese || (announces_in_chinese(text) && !has(CHINESE_NONE))
}

fn announces_in_chinese(text: &str) -> bool {
    CHINESE_OPENINGS.iter().any(|opening| {
        text.match_indices(opening).any(|(at, _)| {
            let behind = &text[at + opening.len()..];
            let reach = behind.char_indices().nth(CHINESE_REACH).map_or(behind.len(), |(at, _)| at);
            CHINESE_ACTIONS.iter().any(|action| behind[..reach].contains(action))
        })
    })
}
