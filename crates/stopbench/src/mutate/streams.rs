//! Cuts streams differently.

use belay_trajectory::TrajectoryEvent;
use belay_trajectory::eval::Run;

use super::{Random, RunBuilder};

/// The way to cut a stream.
#[derive(Clone, Copy)]
enum Cut {
    Singles,
    Random,
    Whole,
}

/// Joins the pieces of each stream and cuts it again. A complete answer without recorded pieces gets pieces.
pub(super) fn reslice(run: &Run, random: &mut Random) -> Run {
    let cut = random.pick(&[Cut::Singles, Cut::Random, Cut::Whole]);
    let mut builder = RunBuilder::of(run);
    let mut streamed = false;
    let mut index = 0;
    while let Some(event) = run.events.get(index) {
        match event {
            TrajectoryEvent::Text(_) => {
                let pieces = run.events[index..].iter().map_while(|event| match event {
                    TrajectoryEvent::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                let count = pieces.clone().count();
                let text: String = pieces.clone().collect();
                // The position of the onset in the joined text, if it is in this stream.
                let onset = run.onset.and_then(|onset| onset.checked_sub(index)).filter(|nth| *nth < count);
                let onset = onset.map(|nth| pieces.take(nth).map(str::len).sum::<usize>());
                push_cut(&mut builder, &text, cut, onset, random);
                streamed = true;
                index += count;
            }
            TrajectoryEvent::Assistant(text) => {
                if streamed {
                    builder.at(index);
                } else {
                    push_cut(&mut builder, text, cut, (run.onset == Some(index)).then_some(0), random);
                }
                builder.push(event.clone());
                streamed = false;
                index += 1;
            }
            _ => {
                if matches!(event, TrajectoryEvent::Turn | TrajectoryEvent::User(_) | TrajectoryEvent::Reset) {
                    streamed = false;
                }
                builder.at(index);
                builder.push(event.clone());
                index += 1;
            }
        }
    }
    builder.done()
}

/// Adds the pieces. `onset`: the position in the text whose piece is the onset.
fn push_cut(builder: &mut RunBuilder<'_>, text: &str, cut: Cut, onset: Option<usize>, random: &mut Random) {
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let chars = match cut {
            Cut::Singles => 1,
            Cut::Random => 1 + random.below(24) as usize,
            Cut::Whole => usize::MAX,
        };
        let length = rest.char_indices().nth(chars).map_or(rest.len(), |(length, _)| length);
        if onset.is_some_and(|onset| (at..at + length).contains(&onset)) {
            builder.onset = Some(builder.events.len());
        }
        builder.push(TrajectoryEvent::Text(rest[..length].to_owned()));
        at += length;
    }
    // If the onset is an empty piece at the very end, the next event is the onset.
    if onset.is_some_and(|onset| onset >= text.len()) {
        builder.onset = Some(builder.events.len());
    }
}
