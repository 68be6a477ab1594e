//! Streams of an answer whose run has said some of it already: of a retry, of a response that is read again, or of a run that
//! went on before anybody watched it.

use axum::response::{IntoResponse, Response};
use belay_protocol::{ApprovalId, Partial, Principal, RunId, RunWatch};

use super::answer::Head;
use super::error::OpenAiError;
use super::outcome::End;
use super::part::{Part, place_of};
use super::readers::Reader;
use super::steps::number_of;
use super::stream::of_run;
use super::turn::RunTurn;
use super::writer::{self, Writer};
use crate::app::App;
use crate::error::ApiError;

/// Streams the answer of a turn. An answer that has ended with a failure before the stream begins is an error with its status.
///
/// # Errors
/// The store cannot be read, of a run that does not end with its client. Another one is streamed from now on: a client repeats
/// an error of the server, and the work would be done twice.
pub(super) async fn of_turn<W: Writer>(run: RunTurn, writer: W) -> Result<Response, OpenAiError> {
    let RunTurn { reader, watch, begins, is_joined } = run;
    let (app, id) = (reader.app.clone(), reader.run);
    let after = place_of(&app, begins, id).await;
    if !is_joined {
        return Ok(of_run(reader, writer, Beginning { watch, before: Vec::new(), after }));
    }
    match Joined::read(&app, &reader.principal, writer.head(), id, after).await {
        Ok(joined) => Ok(joined.answer(reader, writer)),
        Err(error) if reader.is_served => Err(error.into()),
        Err(error) => {
            tracing::warn!(error = %error.message, run_id = %id, "the beginning of a streamed answer is unknown");
            Ok(of_run(reader, writer, Beginning { watch, before: Vec::new(), after }))
        }
    }
}

/// The beginning of a streamed answer.
pub(super) struct Beginning {
    /// The run from now on; `None`: it is not live here, and the store tells of it.
    pub(super) watch: Option<RunWatch>,
    /// The texts of earlier steps that the client is to read too, each with its step.
    pub(super) before: Vec<(u32, String)>,
    /// The request of the run behind whose answer it begins; `None`: it begins with the run.
    pub(super) after: Option<ApprovalId>,
}

/// An answer of which some was said, and the watch that goes on from there.
pub(super) struct Joined {
    part: Part,
    beginning: Beginning,
}

impl Joined {
    /// Reads what was said behind the answer of a request, and watches what follows.
    ///
    /// # Errors
    /// The store cannot be read, or has no such run.
    pub(super) async fn read(
        app: &App,
        principal: &Principal,
        head: &Head,
        run: RunId,
        after: Option<ApprovalId>,
    ) -> Result<Self, ApiError> {
        // The store is read before the watch begins and after it: a step that ends meanwhile is in both.
        let earlier = number_of(&app.runs.run_messages(run).await?);
        let mut watch = app.watch(principal.clone(), run, true).await?;
        let record = app.runs.run(run).await?.ok_or_else(|| ApiError::no_answer("the run is not in the store"))?;
        let part = Part::read(app, head, record.into(), after).await?;
        let before = part.said_before(watch.as_ref(), earlier);
        // The step in which the answer before this one has ended.
        if let Some(watch) = watch.as_mut().filter(|watch| watch.so_far.step <= part.steps.before) {
            watch.so_far = Partial::default();
        }
        Ok(Self { part, beginning: Beginning { watch, before, after } })
    }

    /// Streams it from its beginning to its end.
    pub(super) fn answer<W: Writer>(self, mut reader: Reader, writer: W) -> Response {
        let Self { part, beginning } = self;
        let outcome = &part.outcome;
        if !outcome.is_over() {
            return of_run(reader, writer, beginning);
        }
        let is_read_again = reader.is_served;
        reader.served();
        match &outcome.end {
            // A response that is read again has an event for the failure.
            End::Error(error) if !is_read_again => {
                (writer.head().headers(outcome.run.reason), writer.refusal(error)).into_response()
            }
            _ => {
                let text = part.text(writer.head());
                writer::of_outcome(writer, &text, outcome)
            }
        }
    }
}
