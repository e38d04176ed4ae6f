//! A relay in front of every peer door, in the harness: what goes through it can be delayed.
//! Absent on purpose: reordering and loss, which TCP would hide from both ends anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::PEER_PORT;
use crate::sandbox::{NODES_MAX, address, relay_address};

/// Pieces of at most 64 KiB that one connection may have on the way.
const ON_THE_WAY: usize = 256;

/// All relays. They end with this value.
#[derive(Debug)]
pub struct Relays {
    delay_ms: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Relays {
    /// Listens in front of every node that may ever be.
    pub async fn start() -> anyhow::Result<Self> {
        let delay_ms = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for id in 1..=NODES_MAX {
            let listener = TcpListener::bind((relay_address(id), PEER_PORT)).await?;
            tasks.spawn(relay(listener, id, Arc::clone(&delay_ms)));
        }
        Ok(Self { delay_ms, _tasks: tasks })
    }

    /// From now on everything between peers takes this much longer, each way.
    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or_default(), Ordering::Relaxed);
    }
}

async fn relay(listener: TcpListener, id: u64, delay_ms: Arc<AtomicU64>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((near, _)) = listener.accept().await else { continue };
        let delay_ms = Arc::clone(&delay_ms);
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect((address(id), PEER_PORT)).await else { return };
            // Small pieces must not wait for each other; a socket that is gone needs nothing.
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::select! {
                () = carry(near_in, far_out, Arc::clone(&delay_ms)) => {}
                () = carry(far_in, near_out, delay_ms) => {}
            }
        });
    }
}

/// One direction: each piece leaves as long after its arrival as the delay was then.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay_ms: Arc<AtomicU64>) {
    let (pieces, mut waiting) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let reading = async move {
        let mut buffer = vec![0u8; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::Relaxed));
            let piece = buffer.get(..read).unwrap_or_default().to_vec();
            if pieces.send((due, piece)).await.is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, piece)) = waiting.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
