//! The first bytes of a connection: which HTTP it speaks, found out in time.
//! Absent on purpose: anything that reads further. What was read is put back before the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// How every HTTP/2 connection begins (RFC 9113 §3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes were looked at.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    pub(crate) http2: bool,
    pub(crate) stream: PutBack<S>,
}

/// Reads until it is clear whether a connection begins with the preface of HTTP/2. `None` when it ends before.
pub(crate) async fn open<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<Option<Opened<S>>> {
    let mut head = [0; PREFACE.len()];
    let mut length = 0;
    loop {
        let room = head.get_mut(length..).unwrap_or_default();
        let read = stream.read(room).await?;
        if read == 0 {
            return Ok(None);
        }
        length += read;
        let got = head.get(..length).unwrap_or_default();
        let like = PREFACE.starts_with(got);
        if !like || length == PREFACE.len() {
            return Ok(Some(Opened { http2: like, stream: PutBack { head, from: 0, to: length, stream } }));
        }
    }
}

/// A stream with some bytes before it.
#[derive(Debug)]
pub(crate) struct PutBack<S> {
    head: [u8; PREFACE.len()],
    /// The part of `head` that is still to be read.
    from: usize,
    to: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for PutBack<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = this.head.get(this.from..this.to).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let fits = left.len().min(buf.remaining());
        buf.put_slice(left.get(..fits).unwrap_or_default());
        this.from += fits;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PutBack<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_tell_and_stay() {
        for (sent, http2) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], Some(false)),
            (b"POST / HTTP/1.1\r\n\r\n", Some(false)),
            (b"PRI * HTTP/1.1\r\n\r\n", Some(false)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and more", Some(true)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            (b"P", None),
            (b"", None),
        ] {
            // One byte at a time, and all of them at once.
            for room in [1, 1024] {
                let (mut client, server) = tokio::io::duplex(room);
                let sending = tokio::spawn(async move {
                    client.write_all(sent).await.unwrap();
                });
                let opened = open(server).await.unwrap();
                assert_eq!(opened.as_ref().map(|opened| opened.http2), http2);
                if let Some(mut opened) = opened {
                    let mut all = Vec::new();
                    opened.stream.read_to_end(&mut all).await.unwrap();
                    assert_eq!(all, sent);
                }
                sending.await.unwrap();
            }
        }
    }
}
