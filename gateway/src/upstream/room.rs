//! The connections of one core to one replica that can carry a next request: HTTP/1.1 ones at rest, HTTP/2 ones with
//! room.
//!
//! Decides how long a connection is kept and how old it may grow; opens none.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::time::Instant;

use super::Opening;
use super::lane::{Lane, Lease};
use super::line::Line;
use crate::endpoint::Endpoint;

/// How long an idle connection is kept: below the 5 s after which uvicorn, the shortest-lived server among engines,
/// closes its side.
pub(super) const IDLE: Duration = Duration::from_secs(4);
/// Idle connections kept per replica and core.
const IDLE_MAX: usize = 256;
/// A connection older than this takes no more requests, so that a name that leads elsewhere by now is noticed.
const AGE: Duration = Duration::from_secs(10 * 60);

/// See the module.
#[derive(Debug)]
pub(super) struct Room {
    /// Held, so that its address is not reused while the room is there.
    endpoint: Arc<Endpoint>,
    /// At rest, and since when.
    lines: Vec<(Instant, Line)>,
    lanes: Vec<Rc<Lane>>,
    /// A connection that is being opened for all who want to share it.
    pub(super) opening: Option<Opening>,
}

impl Room {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint, lines: Vec::new(), lanes: Vec::new(), opening: None }
    }

    /// The connection that was used last, so that the others grow old and go.
    pub(super) fn line(&mut self, now: Instant) -> Option<Line> {
        while let Some((since, mut line)) = self.lines.pop() {
            if now.since(since) < IDLE && is_good(&mut line, now) {
                return Some(line);
            }
        }
        None
    }

    /// A line that rests from now on. Whether it was ended, or says what nobody asked for, is looked at when it is taken.
    pub(super) fn keep(&mut self, line: Line, now: Instant) {
        if self.lines.len() < IDLE_MAX {
            self.lines.push((now, line));
        }
    }

    /// A place on a shared connection: on the oldest that has one, so that the others can go.
    pub(super) fn lease(&mut self, now: Instant) -> Option<Lease> {
        self.lanes.retain(|lane| is_useful(lane, now));
        self.lanes.iter().find_map(|lane| lane.lease())
    }

    /// A connection that others may share from now on.
    pub(super) fn share(&mut self, lane: Rc<Lane>) {
        self.lanes.push(lane);
    }

    /// Closes what is of no more use; `false` when nothing is left.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let closed = self.endpoint.is_closed();
        self.lines.retain_mut(|(since, line)| !closed && now.since(*since) < IDLE && is_good(line, now));
        self.lanes.retain(|lane| !closed && is_useful(lane, now));
        !(self.lines.is_empty() && self.lanes.is_empty() && self.opening.is_none())
    }
}

/// Whether a line may take another request.
fn is_good(line: &mut Line, now: Instant) -> bool {
    now.since(line.opened()) < AGE && line.is_quiet()
}

/// Whether a lane may take requests. One that may not is forgotten here and ends with its last stream.
fn is_useful(lane: &Rc<Lane>, now: Instant) -> bool {
    let idle = lane.idle_since().is_some_and(|since| now.since(since) >= IDLE);
    !lane.is_over() && !idle && now.since(lane.opened()) < AGE
}
