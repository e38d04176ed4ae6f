//! One task for all who wait for the same news, only while somebody does.
//! Absent on purpose: a task that fails unseen. When it ends, whoever waits is told so, and the next to come starts
//! another.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

/// The task, if one runs.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    running: Mutex<Weak<watch::Sender<T>>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { running: Mutex::new(Weak::new()) }
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// News from now on, of the task that runs or of a new one, which begins with `first`.
    pub(crate) fn join<F>(
        self: &Arc<Self>,
        first: T,
        work: impl FnOnce(Arc<watch::Sender<T>>) -> F,
    ) -> watch::Receiver<T>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = running.upgrade() {
            return news.subscribe();
        }
        let (news, listener) = watch::channel(first);
        let news = Arc::new(news);
        *running = Arc::downgrade(&news);
        let (shared, work) = (Arc::clone(self), work(Arc::clone(&news)));
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                () = shared.unwatched(&news) => {}
            }
        });
        listener
    }

    /// Returns when nobody listens and nobody will: who comes later finds no task.
    async fn unwatched(&self, news: &watch::Sender<T>) {
        loop {
            news.closed().await;
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if news.is_closed() {
                *running = Weak::new();
                return;
            }
        }
    }
}
