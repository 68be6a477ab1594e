//! The parts that channels share.
//!
//! **For**: [`batch`] keeps the cursor of a source after its messages were settled; [`split`] cuts long answers in the
//! unit of a platform; [`html`] shows Markdown on a platform of HTML.
//!
//! **Does not know** any platform, the agent or the store.

pub mod batch;
pub mod html;
pub mod split;
