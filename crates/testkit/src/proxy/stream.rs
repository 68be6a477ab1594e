//! One direction of one connection.

use std::sync::PoisonError;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    time::sleep,
};

use super::{Action, Direction, Shared, scanner::Scanner};

/// The size of a piece, in bytes.
const PIECE: usize = 64 * 1024;

/// Forwards until the connection ends or a fault cuts it.
pub(super) async fn carry(
    shared: &Shared,
    number: u64,
    direction: Direction,
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
) {
    let mut controls = shared.controls.subscribe();
    let mut scanner = Scanner::default();
    let mut buffer = vec![0; PIECE];
    loop {
        // The sender lives as long as `shared`.
        let _ = controls.wait_for(|controls| controls.passes(number)).await;
        let read = from.read(&mut buffer).await;
        let _ = controls.wait_for(|controls| controls.passes(number)).await;
        let Ok(read @ 1..) = read else { return };
        let piece = &buffer[..read];
        let delay = controls.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let _ = controls.wait_for(|controls| controls.passes(number)).await;
        let mut forwarded = 0;
        if let Some((action, start, end)) = shared.due(direction, &scanner, piece) {
            let upto = if action == Action::CutAfter { end } else { start };
            let sent = to.write_all(&piece[..upto]).await;
            shared.happen(action);
            if action != Action::Hold || sent.is_err() {
                return;
            }
            forwarded = upto;
            let _ = controls.wait_for(|controls| controls.passes(number)).await;
        }
        if to.write_all(&piece[forwarded..]).await.is_err() {
            return;
        }
        scanner.pass(piece);
    }
}

impl Shared {
    /// The armed fault, if it happens in this piece, with the place of its bytes. It is disarmed then.
    fn due(&self, direction: Direction, scanner: &Scanner, piece: &[u8]) -> Option<(Action, usize, usize)> {
        let mut armed = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = armed.as_mut().filter(|fault| fault.direction == direction)?;
        for (start, end) in scanner.find(piece, &fault.bytes) {
            fault.nth = fault.nth.saturating_sub(1);
            if fault.nth == 0 {
                let action = fault.action;
                *armed = None;
                return Some((action, start, end));
            }
        }
        None
    }

    /// Changes the controls as the action says, and reports the fault.
    fn happen(&self, action: Action) {
        match action {
            Action::CutBefore | Action::CutAfter => {}
            Action::CutBeforeAndRefuse => self.controls.send_modify(|controls| {
                controls.refuse = true;
                controls.cuts += 1;
            }),
            Action::Hold => self.controls.send_modify(|controls| controls.hold = true),
        }
        self.happened.send_modify(|happened| *happened += 1);
    }
}
