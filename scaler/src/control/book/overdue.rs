//! Who has taken too long to become ready, or to get room. Ends nobody by itself.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::time::{Duration, Instant};

use super::{Book, Member, News};

/// How long a replica may wait for room at its provider, before another one is ordered in its place.
pub(super) const QUEUE_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

impl Book {
    /// Ends those that are not ready `limit` after their provider had room for them, which fails their start; and those that
    /// waited for room too long, which does not. `explain` says more about each.
    pub(in crate::control) fn end_overdue(
        &mut self,
        now: Instant,
        limit: Duration,
        explain: impl Fn(ReplicaId) -> String,
    ) -> Vec<News> {
        let overdue = |member: &Member| member.stage.starts() && now.since(member.began) >= limit;
        let in_line = |member: &Member| member.queued && now.since(member.since) >= QUEUE_LIMIT;
        let those = |which: &dyn Fn(&Member) -> bool| -> Vec<ReplicaId> {
            self.members.iter().filter(|(_, member)| which(member)).map(|(id, _)| *id).collect()
        };
        let (late, waited) = (those(&overdue), those(&in_line));
        let line = format!("it waited for room for {QUEUE_LIMIT:?}, and gives up its place in the line");
        waited.into_iter().for_each(|id| drop(self.end(id, &line, false)));
        let held = |book: &Self, id| book.members.get(&id).and_then(|member| member.held.clone());
        let why = |book: &Self, id| match held(book, id) {
            Some(why) => format!("it never ran within the start limit of {limit:?}: {why}"),
            None => format!("not ready within the start limit of {limit:?}{}", explain(id)),
        };
        late.into_iter().filter_map(|id| self.end(id, &why(self, id), true)).collect()
    }
}
