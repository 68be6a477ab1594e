//! `belay people`: lists people, admits strangers and removes people.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::{Value as Json, json};

use super::{Client, text};
use crate::args::{ClientArgs, PeopleArgs, PeopleCommand};

/// Lists people, or carries out a subcommand.
pub async fn people(args: &PeopleArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match &args.command {
        None => list(&args.client, env, out).await,
        Some(PeopleCommand::List(client)) => list(client, env, out).await,
        Some(PeopleCommand::Pair { client, code }) => {
            let path = ["api", "v1", "people", "pair"];
            let body = json!({ "code": code });
            let answer = Client::find(client, env)?.post(&path, Some(&body), Duration::ZERO).await?;
            done(&answer, "the person is admitted", client, out)
        }
        Some(PeopleCommand::Remove { client, person }) => {
            let answer = Client::find(client, env)?.delete_with(&["api", "v1", "people", person], &[]).await?;
            done(&answer, "the admission is revoked", client, out)
        }
    }
}

async fn list(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = Client::find(args, env)?.get(&["api", "v1", "people"], &[]).await?;
    if args.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    let rows: Vec<Vec<Cell>> = entries(&answer, "/people")
        .iter()
        .map(person)
        .chain(entries(&answer, "/pending").iter().map(pending))
        .collect();
    if rows.is_empty() {
        out.line("nobody is admitted by a list or by pairing");
        return Ok(Exit::Fine);
    }
    let head = ["PERSON", "NAME", "ROLE", "ADMITTED"].map(|name| Cell::new(name, Tone::Dim)).into();
    out.table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    Ok(Exit::Fine)
}

fn done(answer: &Json, said: &str, args: &ClientArgs, out: Output<'_>) -> Result<Exit, Failure> {
    if args.json {
        out.json(answer);
    } else {
        out.line(said);
    }
    Ok(Exit::Fine)
}

fn entries<'a>(answer: &'a Json, list: &str) -> &'a [Json] {
    answer.pointer(list).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn person(person: &Json) -> Vec<Cell> {
    let admitted = match text(person, "/admitted/by") {
        "pairing" => {
            let [operator, through, at] =
                ["/admitted/operator", "/admitted/through", "/admitted/at"].map(|field| text(person, field));
            format!("by {through}:{operator} at {at}")
        }
        _ => "by the settings".to_owned(),
    };
    row(person, text(person, "/role"), &admitted)
}

fn pending(stranger: &Json) -> Vec<Cell> {
    row(stranger, "stranger", &format!("no; has a code until {}", text(stranger, "/expires_at")))
}

fn row(person: &Json, role: &str, admitted: &str) -> Vec<Cell> {
    let name = format!("{}:{}", text(person, "/channel"), text(person, "/id"));
    vec![name.as_str().into(), text(person, "/name").into(), role.into(), admitted.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_person_has_a_row_that_says_what_admits_them() {
        let paired = json!({"channel": "telegram", "id": "42", "name": "Ann", "role": "user",
            "admitted": {"by": "pairing", "operator": "7", "through": "telegram", "at": "T"}});
        let listed = json!({"channel": "telegram", "id": "7", "role": "operator", "admitted": {"by": "settings"}});
        let stranger = json!({"channel": "telegram", "id": "9", "name": "Eve", "expires_at": "T"});
        let cells = |row: [&str; 4]| row.map(Cell::from).to_vec();
        assert_eq!(person(&paired), cells(["telegram:42", "Ann", "user", "by telegram:7 at T"]));
        assert_eq!(person(&listed), cells(["telegram:7", "", "operator", "by the settings"]));
        assert_eq!(pending(&stranger), cells(["telegram:9", "Eve", "stranger", "no; has a code until T"]));
    }
}
