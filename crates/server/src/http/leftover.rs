//! Bodies that nobody read. A request may be refused before its body has come; if the answer went out and the rest were
//! left, the connection would have to be cut, and whoever sends would perhaps never hear why. So what is left is read and
//! dropped, within reason; beyond it the answer says that the connection is over.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// What is read for nothing: a body that is just too large, sent by somebody who hasn't heard yet.
const MOST: usize = 16 << 20;
const WITHIN: Duration = Duration::from_secs(2);

/// A body on its way to a handler. Dropped before its end, it comes back.
#[derive(Debug)]
pub(super) struct Lent {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

/// The other end of a [`Lent`].
#[derive(Debug)]
pub(super) struct Lender(oneshot::Receiver<Incoming>);

pub(super) fn lend(body: Incoming) -> (Lent, Lender) {
    let (back, left) = oneshot::channel();
    (Lent { body: Some(body), back: Some(back) }, Lender(left))
}

impl Lender {
    /// Reads what the handler left, once it is done. False: there is more, and it stays unread.
    pub(super) async fn finish(mut self) -> bool {
        let Ok(mut body) = self.0.try_recv() else { return true };
        let rest = async {
            let mut read = 0;
            while let Some(frame) = body.frame().await {
                read += frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
                if frame.is_err() || read > MOST {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(WITHIN, rest).await.unwrap_or(false)
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take())
            && !body.is_end_stream()
        {
            // Nobody waits for it when the connection is gone.
            let _ = back.send(body);
        }
    }
}
