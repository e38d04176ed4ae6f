//! Holds back appends that carry nothing but a commit.
//! Absent on purpose: holding back anything that a peer must know now.
//!
//! Raft tells every peer at once what became committed, and the peer answers. While calls follow one another that is a
//! second message for each of them, which the next append brings along anyway: acknowledgements are cumulative, so one
//! that was never asked for is not missed. Without a next append the commit follows a moment later, because a follower's
//! own readers wait for it.

use std::pin::Pin;
use std::time::Duration;

use futures::stream::Fuse;
use futures::{Stream, StreamExt};
use openraft::raft::AppendEntriesRequest;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::types::Types;

/// Longer than one decide of a caller who asks one after the other; shorter than anybody notices.
const HOLD: Duration = Duration::from_millis(5);

struct Held<S> {
    /// Raft's requests must not be asked for again once they have ended, and they may end while one is held.
    input: Fuse<S>,
    /// One for all commits: setting it anew to a later moment wakes nobody, and a timer for each would.
    alarm: Pin<Box<Sleep>>,
    /// The first request of a stream asks where the peer stands: nothing else may answer for it.
    first: bool,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Held<S> {
    async fn next(&mut self) -> Option<AppendEntriesRequest<Types>> {
        let mut request = self.input.next().await?;
        if !request.entries.is_empty() || std::mem::take(&mut self.first) {
            self.first = false;
            return Some(request);
        }
        self.alarm.as_mut().reset(Instant::now() + HOLD);
        while request.entries.is_empty() {
            tokio::select! {
                biased;
                () = &mut self.alarm => break,
                next = self.input.next() => match next {
                    Some(next) => request = next,
                    None => break,
                },
            }
        }
        Some(request)
    }
}

/// The same requests without those that the next one within [`HOLD`] makes needless.
pub(super) fn hold_back<S>(input: S) -> impl Stream<Item = AppendEntriesRequest<Types>>
where
    S: Stream<Item = AppendEntriesRequest<Types>> + Unpin,
{
    let held = Held { input: input.fuse(), alarm: Box::pin(sleep_until(Instant::now())), first: true };
    futures::stream::unfold(held, |mut held| async move { held.next().await.map(|request| (request, held)) })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::channel::mpsc;

    use super::*;
    use crate::types::{Blob, Entry, LogId, Vote};

    fn request(prev: u64, entries: u64, commit: u64) -> AppendEntriesRequest<Types> {
        let entry = |index| Entry {
            log_id: LogId::new_term_index(1, index),
            payload: openraft::EntryPayload::Normal(Blob(Bytes::new())),
        };
        AppendEntriesRequest {
            vote: Vote::new(1, 1),
            prev_log_id: Some(LogId::new_term_index(1, prev)),
            entries: (prev + 1..=prev + entries).map(entry).collect(),
            leader_commit: Some(LogId::new_term_index(1, commit)),
        }
    }

    fn committed(request: Option<AppendEntriesRequest<Types>>) -> Option<(usize, u64)> {
        request.map(|one| (one.entries.len(), one.leader_commit.map_or(0, |id| id.index)))
    }

    /// Goal: a commit travels with the append behind it, alone when there is none, and the first request is never held.
    #[tokio::test(start_paused = true)]
    async fn a_commit_travels_with_the_next_append_or_alone() {
        let (sender, receiver) = mpsc::unbounded();
        // As Raft's: a panic if it is asked again behind its end.
        let once = futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.next().await?, receiver)) });
        let mut held = Box::pin(hold_back(Box::pin(once)));
        let begun = Instant::now();
        sender.unbounded_send(request(1, 0, 1)).unwrap();
        assert_eq!(committed(held.next().await), Some((0, 1)), "it asks where the peer stands");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for (prev, entries, commit) in [(1, 2, 1), (3, 0, 3), (3, 1, 3)] {
            sender.unbounded_send(request(prev, entries, commit)).unwrap();
        }
        assert_eq!(committed(held.next().await), Some((2, 1)));
        assert_eq!(committed(held.next().await), Some((1, 3)), "the append has the commit");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        sender.unbounded_send(request(4, 0, 3)).unwrap();
        sender.unbounded_send(request(4, 0, 4)).unwrap();
        assert_eq!(committed(held.next().await), Some((0, 4)), "the last commit of several");
        assert!(begun.elapsed() >= HOLD);
        sender.unbounded_send(request(4, 0, 5)).unwrap();
        drop(sender);
        assert_eq!(committed(held.next().await), Some((0, 5)), "what is held leaves when the stream ends");
        assert_eq!(committed(held.next().await), None);
    }
}
