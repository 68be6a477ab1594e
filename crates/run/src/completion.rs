//! Detects whether a text states that the work is done, for agents that work autonomously. Pure.
//!
//! The test examines one clause at a time, outside of code and quotations. It requires a whole statement: a subject, an
//! auxiliary, and a word for "finished" ("the task is complete", "ich habe alles erledigt"). A clause does not count if
//! it contains a negation, a question, the future tense, a condition or a partial result. A missed statement costs one
//! notice; a false detection would end the work. So doubt counts as "not done".

/// Words by which a language states that something is done, separated by spaces.
struct Language {
    /// Things that can be done ("task") and persons who do them ("i").
    subjects: &'static str,
    /// Auxiliaries. A word that is also in `subjects` is both at once: "i've".
    auxiliaries: &'static str,
    /// Words for "finished".
    finished: &'static str,
    /// Words that disqualify a clause.
    blockers: &'static str,
    /// Whole clauses that state it without an auxiliary, separated by bars.
    short: &'static str,
    /// Maximum number of words between subject and auxiliary, and between auxiliary and participle.
    reach: usize,
}

const LANGUAGES: &[Language] = &[
    Language {
        subjects: "task tasks job work step steps request requests assignment everything all this that it i we i've we've \
                   it's that's everything's i'm",
        auxiliaries: "is are has have was were am i've we've it's that's everything's i'm",
        finished: "complete completed done finished accomplished fulfilled",
        blockers: "not n't never no nothing none yet cannot if once until till unless when whenever after before as whether \
                   assuming provided will would should could can may might must shall going need needs want almost nearly \
                   half partially partly mostly first second third part some next remaining far hardly barely try trying \
                   think hope ensure what how why who",
        short: "done|all done|finished|task complete|task completed|task done|task finished",
        reach: 2,
    },
    Language {
        subjects: "aufgabe aufgaben auftrag arbeit arbeiten schritt schritte anfrage alles das ich wir",
        auxiliaries: "ist sind habe haben wurde wurden bin",
        finished: "erledigt fertig abgeschlossen beendet vollendet fertiggestellt erfüllt ausgeführt",
        blockers: "nicht nichts nie kein keine keinen noch wenn falls sobald bis bevor nachdem ob sofern wird werde werden \
                   würde könnte kann sollte soll muss möchte will fast beinahe nahezu halb kaum teilweise teil erste ersten \
                   erster zweite zweiten nächste nächsten zuerst was wie warum wer",
        short: "erledigt|fertig|alles erledigt|aufgabe erledigt|aufgabe abgeschlossen",
        // The participle is at the end: "ich habe alle Punkte dieses Schritts erledigt".
        reach: 8,
    },
    Language {
        subjects: "tâche travail étape demande tout c'est j'ai nous",
        auxiliaries: "est sont a ont avons été c'est j'ai",
        finished: "terminé terminée terminés fini finie accompli accomplie achevé achevée fait",
        blockers: "pas ne n'est n'ai n'a jamais rien encore si quand lorsque dès une après avant sera serait vais va doit \
                   presque partie première premier que comment",
        short: "terminé|tout est fait|tâche terminée",
        reach: 2,
    },
    Language {
        subjects: "tarea trabajo paso solicitud todo he hemos",
        auxiliaries: "está ha he hemos sido queda",
        finished: "completa completo completada completado terminada terminado hecho hecha lista listo acabado finalizado \
                   finalizada",
        blockers: "no nunca nada aún todavía si cuando hasta antes después estará será voy va debe casi parte primera \
                   primer primero que cómo",
        short: "terminado|hecho|tarea completada|tarea terminada",
        reach: 2,
    },
];

/// Whether the text states that the work is done.
pub(crate) fn signals_completion(text: &str) -> bool {
    let prose = prose_of(text);
    clauses(&prose).any(|(clause, asked)| {
        !asked && {
            let words = words_of(clause);
            LANGUAGES.iter().any(|language| says_done(language, &words))
        }
    })
}

fn says_done(language: &Language, words: &[String]) -> bool {
    let has = |list: &str, word: &String| list.split(' ').any(|known| known == word);
    if words.iter().any(|word| has(language.blockers, word)) {
        return false;
    }
    let clause = words.join(" ");
    if language.short.split('|').any(|known| known == clause) {
        return true;
    }
    words.iter().enumerate().filter(|(_, word)| has(language.finished, word)).any(|(end, _)| {
        // "I have finished reading" describes only a part of the work.
        let goes_on =
            words.get(end + 1).is_some_and(|next| next.len() > 4 && next.ends_with("ing") && next != "everything");
        let from = end.saturating_sub(language.reach + 1);
        !goes_on
            && (from..end).rev().any(|aux| {
                let joined = has(language.subjects, &words[aux]) && has(language.auxiliaries, &words[aux]);
                let before = aux.saturating_sub(language.reach + 1);
                let subject = words[before..aux].iter().any(|word| has(language.subjects, word));
                // In German the subject may follow the auxiliary: "damit habe ich alles erledigt".
                let behind = words[aux + 1..end].iter().any(|word| has(language.subjects, word));
                joined || (has(language.auxiliaries, &words[aux]) && (subject || behind))
            })
    })
}

/// The text without code blocks, inline code and quotations.
fn prose_of(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut fenced = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            fenced = !fenced;
        } else if !fenced && !trimmed.starts_with('>') {
            let mut quoted = false;
            for c in line.chars() {
                match c {
                    '`' | '"' | '„' | '“' | '”' | '«' | '»' => quoted = !quoted,
                    '*' | '_' | '#' => {}
                    '’' => prose.push('\''),
                    c if !quoted => prose.push(c),
                    _ => {}
                }
            }
            prose.push('\n');
        }
    }
    prose
}

/// The clauses of a text, each with whether it belongs to a question.
fn clauses(prose: &str) -> impl Iterator<Item = (&str, bool)> {
    prose.split_inclusive(['.', '!', '?', '\n', '✅']).flat_map(|sentence| {
        let asked = sentence.trim_end().ends_with('?');
        sentence.split([',', ';', ':', '–', '—', '(', ')']).map(move |clause| (clause, asked))
    })
}

/// Lower-case words. An English "n't" becomes a word of its own, so that it counts as a negation.
fn words_of(clause: &str) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '\'' || c == '-';
    let lower = clause.to_lowercase();
    let mut words = Vec::new();
    for word in lower.split(|c| !is_part(c)).filter(|word| !word.is_empty()) {
        match word.strip_suffix("n't") {
            Some(bare) => words.extend([bare.to_owned(), "n't".to_owned()]),
            None => match word.strip_suffix("'ll").or_else(|| word.strip_suffix("'d")) {
                Some(bare) => words.extend([bare.to_owned(), "will".to_owned()]),
                None => words.push(word.to_owned()),
            },
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::signals_completion;

    #[test]
    fn a_statement_that_the_work_is_done_is_heard() {
        for text in [
            "The task is complete.",
            "Task complete",
            "All done!",
            "I have finished the step. The file has 12 lines.",
            "I've now completed the request, and no further action is needed.",
            "Everything is done: the list is in `list.txt`.",
            "Result: 42.\n\nThe work has been completed.",
            "**The task is complete.** ✅",
            "It was not easy. Still, the job is done.",
            "If you need more, tell me. The task is finished.",
            "We’ve finished everything",
            "Die Aufgabe ist erledigt.",
            "Ich habe alle Punkte dieses Schritts erledigt.",
            "Damit fertig: Der Schritt ist abgeschlossen.",
            "Ich bin fertig.",
            "Damit habe ich alles erledigt.",
            "La tâche est terminée.",
            "J'ai terminé.",
            "La tarea está completa.",
            "He terminado el trabajo.",
        ] {
            assert!(signals_completion(text), "{text}");
        }
    }

    #[test]
    fn denials_plans_conditions_parts_questions_and_quotations_are_not() {
        for text in [
            "",
            "The answer is 42.",
            "The task is not complete.",
            "The task isn't complete yet.",
            "I have not finished.",
            "I haven't finished the step.",
            "Once the task is complete, I will tell you.",
            "I will continue until the work is done.",
            "When everything is done I'll call terminate.",
            "The task will be complete in a minute.",
            "I'll have finished soon.",
            "Is the task complete?",
            "The first step is done.",
            "I have finished reading the file.",
            "The task is almost complete.",
            "The step is partially done.",
            "No task is complete.",
            "I need to make sure that everything is done.",
            "As soon as this is done, the next step follows.",
            "The log says \"the task is complete\".",
            "```\nThe task is complete.\n```",
            "> The task is complete.",
            "Let me complete the task.",
            "The complete list is below.",
            "Die Aufgabe ist noch nicht erledigt.",
            "Sobald die Aufgabe erledigt ist, melde ich mich.",
            "Ich werde die Arbeit abgeschlossen haben.",
            "Der erste Schritt ist erledigt.",
            "Ist die Aufgabe erledigt?",
            "La tâche n'est pas terminée.",
            "Quand la tâche est terminée, je le dirai.",
            "La tarea no está completa.",
            "Cuando la tarea está completa, lo diré.",
        ] {
            assert!(!signals_completion(text), "{text}");
        }
    }
}
