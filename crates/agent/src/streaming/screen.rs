//! Shows a turn in its conversation before its answer, as its channel supports it: in pieces, in a preview, or not at
//! all.

use std::sync::Arc;

use belay_protocol::{Channel, HookPoint, LiveNews, ReplyRoute, Streaming};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::block_sender::{BlockSender, sent_before};
use super::live;
use super::preview::{Left, Previewer};
use crate::agent_services::AgentServices;
use belay_run::chunking::Blocks;
use belay_run::journal::RunJournal;
use belay_run::live::LiveRun;
use belay_run::request::RunRequest;

/// Shows one turn. If it is dropped, it shows nothing more.
pub(crate) struct Screen {
    run: Arc<LiveRun>,
    /// The one task that shows the turn.
    task: JoinSet<Left>,
    finish: CancellationToken,
    shower: PreviewTarget,
}

/// Destination of a preview.
#[derive(Clone)]
struct PreviewTarget {
    run: Arc<LiveRun>,
    channel: Arc<dyn Channel>,
    route: ReplyRoute,
    services: Arc<AgentServices>,
    request: Arc<RunRequest>,
}

/// The fate of a preview at the end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The answer replaces it.
    Answered,
    /// Nothing replaces it: the run is silent or paused, or another message has informed the person.
    Nothing,
}

impl Screen {
    /// Starts showing a run, if its channel supports it and no hook has to check the answer first.
    pub(crate) async fn open(
        services: &Arc<AgentServices>,
        run: &Arc<LiveRun>,
        request: &Arc<RunRequest>,
        journal: impl FnOnce() -> RunJournal,
    ) -> Option<Self> {
        let route = request.reply_to.clone()?;
        let channel = services.channels.get(&route.channel)?.clone();
        // Nobody may read text that the operator's hooks have not checked.
        if services.hooks.is_bound(HookPoint::MessageSending) {
            return None;
        }
        let (mut task, finish) = (JoinSet::new(), CancellationToken::new());
        let shower =
            PreviewTarget { run: run.clone(), channel, route, services: services.clone(), request: request.clone() };
        match shower.channel.display().streaming {
            Streaming::Off => return None,
            Streaming::Blocks { max_chars } => {
                if run.output.blocks().is_none() {
                    let before = match sent_before(&*services.store.events, run.id).await {
                        Ok(before) => before,
                        Err(error) => {
                            tracing::error!(run = %run.id, %error, "pieces sent by earlier attempts are unknown; not streaming");
                            return None;
                        }
                    };
                    run.output.say_in(Blocks::new(&services.streaming, max_chars, before));
                }
                let (journal, idle) = (journal(), services.streaming.idle());
                let sender = BlockSender { run: run.clone(), journal, route: shower.route.clone(), idle };
                let finish = finish.clone();
                task.spawn(async move {
                    sender.send_all(finish).await;
                    Left::default()
                });
            }
            Streaming::Preview(_) => {
                let (shower, finish) = (shower.clone(), finish.clone());
                task.spawn(async move {
                    match shower.previewer() {
                        Some(previewer) => previewer.show(&finish).await,
                        None => Left::default(),
                    }
                });
            }
            Streaming::Live(_) => {
                let (shower, finish) = (shower.clone(), finish.clone());
                task.spawn(async move {
                    if let Streaming::Live(view) = shower.channel.display().streaming {
                        live::show(&shower.run, view, &finish).await;
                    }
                    Left::default()
                });
            }
        }
        Some(Self { run: run.clone(), task, finish, shower })
    }

    /// Ends the display. Returns the message on the platform that the answer replaces.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, a message with a part of the answer may stay on the platform.
    pub(crate) async fn close(mut self, closing: Closing) -> Option<Arc<str>> {
        if closing == Closing::Answered
            && let Some(mut blocks) = self.run.output.blocks()
        {
            blocks.cut();
        }
        self.finish.cancel();
        let left = match self.task.join_next().await {
            Some(Ok(left)) => left,
            Some(Err(error)) => {
                tracing::error!(run = %self.run.id, %error, "the display task panicked");
                Left::default()
            }
            None => Left::default(),
        };
        if let Streaming::Live(view) = self.shower.channel.display().streaming {
            view.show(self.run.id, LiveNews::Ended { answered: closing == Closing::Answered });
        }
        let message = left.message?;
        if closing == Closing::Answered && !left.unsure {
            return Some(message);
        }
        if let Some(previewer) = self.shower.previewer() {
            previewer.discard(&message).await;
        }
        None
    }
}

impl PreviewTarget {
    fn previewer(&self) -> Option<Previewer<'_>> {
        let Streaming::Preview(preview) = self.channel.display().streaming else { return None };
        Some(Previewer {
            run: &self.run,
            preview,
            route: &self.route,
            pace: self.services.streaming.preview_pace().max(preview.pace()),
            reasoning: self.request.options.reasoning.unwrap_or_default(),
        })
    }
}
