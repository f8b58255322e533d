//! The server's end of the protocol, with somebody at the other end who doesn't mean well.

use crate::bench::{self, Bench, exec, fresh};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_model::frame::{self, Chunk, Decoder, Kind, Stream};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    At, CommandInfo, Ending, Event, Exec, Fault, FaultCode, OpenShell, Program, Reply, Request, Stats, Status, Welcome,
};
use stead_model::state::Bytes;
use stead_server::provider::Access;
use stead_server::steward::{Next, Steward, StewardError, Told};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// The other end.
struct Peer {
    io: DuplexStream,
    decoder: Decoder,
}

const WELCOME: Welcome = Welcome { version: 1, build: String::new(), epoch: 1, pid: 2, keeper_pid: 3 };

impl Peer {
    /// One that has greeted, and the end that was greeted.
    async fn greeted(room: usize) -> (Steward, Self) {
        let (ours, theirs) = tokio::io::duplex(room);
        let mut peer = Self { io: theirs, decoder: Decoder::default() };
        let (steward, ()) = tokio::join!(Steward::greet(Box::new(ours)), async {
            let (id, _) = peer.next().await;
            peer.reply(id, &Reply::Welcome(WELCOME)).await;
        });
        (steward.unwrap(), peer)
    }

    /// The next request; panics when the connection is over.
    async fn next(&mut self) -> (u32, Request) {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                assert_eq!(frame.kind, Kind::Request);
                return (frame.request, minicbor::decode(&frame.payload).unwrap());
            }
            let bytes = self.io.read(&mut buffer).await.unwrap();
            assert_ne!(bytes, 0, "the connection is over");
            self.decoder.push(&buffer[..bytes]);
        }
    }

    async fn send(&mut self, kind: Kind, id: u32, payload: &[u8]) -> bool {
        let mut out = Vec::new();
        frame::write(&mut out, kind, id, payload);
        self.io.write_all(&out).await.is_ok()
    }

    async fn reply(&mut self, id: u32, reply: &Reply) -> bool {
        self.send(Kind::Reply, id, &minicbor::to_vec(reply).unwrap()).await
    }

    async fn event(&mut self, id: u32, event: &Event) -> bool {
        self.send(Kind::Event, id, &minicbor::to_vec(event).unwrap()).await
    }

    async fn data(&mut self, id: u32, seq: u64, bytes: Vec<u8>) -> bool {
        let chunk = Chunk { seq, stream: Stream::Stdout, late: false, offset: 0, at: 0, bytes };
        self.send(Kind::Data, id, &chunk.encode()).await
    }
}

fn stats(shells: u64) -> Reply {
    let nothing =
        Stats { shells, connections: 0, running: 0, queued: 0, commands: 0, journal_bytes: 0, journal_limit: 0 };
    Reply::Stats(nothing)
}

fn followed() -> Request {
    Request::Exec(Box::new(Exec { follow: Some(Steward::credit()), ..exec("true") }))
}

fn ended() -> Reply {
    Reply::Command(Box::new(CommandInfo {
        command: CommandId::parse("c").unwrap(),
        shell: ShellId::parse("s").unwrap(),
        number: 1,
        status: Status::Exited,
        ending: Some(Ending::new(Status::Exited, Some(0))),
        stdout_bytes: 0,
        stderr_bytes: 0,
        last_seq: 2,
        cwd: Bytes::default(),
        state_version: 1,
        accepted_at: 0,
        started_at: None,
        ended_at: None,
        stalled: false,
        evicted: false,
        state: None,
        sums: None,
    }))
}

/// A deadline for what must not hang, in the time of the test.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), what).await.expect("it hangs")
}

async fn until_broken(steward: &Steward) {
    soon(async {
        while !steward.is_broken() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

fn framed(kind: Kind, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, kind, id, payload);
    out
}

#[tokio::test]
async fn garbage_ends_the_connection_with_an_error() {
    let mut unknown_kind = framed(Kind::Reply, 1, b"");
    unknown_kind[4] = 99;
    let chunk = Chunk { seq: 1, stream: Stream::Stdout, late: false, offset: 0, at: 0, bytes: vec![1] };
    let mut unknown_stream = framed(Kind::Data, 1, &chunk.encode());
    unknown_stream[9 + 8] = 7;
    let nested: Vec<u8> = std::iter::repeat_n(0x81, 100_000).collect();
    let cases: [(&str, Vec<u8>); 11] = [
        ("a web page", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("zeros", vec![0; 64]),
        ("a length beyond the limit", u32::MAX.to_be_bytes().to_vec()),
        ("a length one beyond it", u32::try_from(frame::MAX_FRAME + 1).unwrap().to_be_bytes().to_vec()),
        ("a frame without a header", [0, 0, 0, 1, 2].to_vec()),
        ("an unknown kind", unknown_kind),
        ("an unreadable reply", framed(Kind::Reply, 1, b"\xff\xff\xff")),
        ("an empty reply", framed(Kind::Reply, 1, b"")),
        ("a reply of boxes in boxes", framed(Kind::Reply, 1, &nested)),
        ("an unknown stream", unknown_stream),
        ("a question instead of an answer", framed(Kind::Request, 1, &minicbor::to_vec(Request::Stats).unwrap())),
    ];
    for (what, bytes) in cases {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(&bytes).await.unwrap();
        let answer = soon(Steward::greet(Box::new(ours))).await;
        assert!(matches!(answer, Err(StewardError::Protocol(_))), "{what}: {answer:?}");
        // And the same after a good beginning, with somebody waiting.
        let (steward, mut peer) = Peer::greeted(1 << 20).await;
        let (answer, ()) = tokio::join!(soon(steward.request(&Request::Stats)), async {
            let (id, _) = peer.next().await;
            let mut bytes = bytes.clone();
            if let Some(number) = bytes.get_mut(5..9).filter(|_| !what.contains("length") && !what.contains("zeros")) {
                number.copy_from_slice(&id.to_be_bytes());
            }
            peer.io.write_all(&bytes).await.unwrap();
        });
        assert!(matches!(answer, Err(StewardError::Protocol(_))), "{what}: {answer:?}");
        assert!(steward.is_broken());
        let again = soon(steward.request(&Request::Stats)).await;
        assert!(matches!(again, Err(StewardError::Protocol(_))), "{what}: {again:?}");
    }
}

#[tokio::test]
async fn a_greeting_of_another_kind_or_version_is_none() {
    let fault = Fault::new(FaultCode::Version, "no version in common");
    for reply in [Reply::Done, stats(1), ended(), Reply::Welcome(Welcome { version: 99, ..WELCOME })] {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut peer = Peer { io: theirs, decoder: Decoder::default() };
        let (answer, _) = tokio::join!(soon(Steward::greet(Box::new(ours))), async {
            let (id, _) = peer.next().await;
            peer.reply(id, &reply).await
        });
        assert!(matches!(answer, Err(StewardError::Protocol(_))), "{reply:?}: {answer:?}");
    }
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut peer = Peer { io: theirs, decoder: Decoder::default() };
    let (answer, _) = tokio::join!(soon(Steward::greet(Box::new(ours))), async {
        let (id, _) = peer.next().await;
        peer.send(Kind::Fault, id, &minicbor::to_vec(&fault).unwrap()).await
    });
    assert_eq!(answer.unwrap_err().fault(), Some(FaultCode::Version));
}

#[tokio::test]
async fn an_answer_to_what_was_never_asked_ends_the_connection() {
    for id in [0, 3, 1000, u32::MAX] {
        let (steward, mut peer) = Peer::greeted(1 << 16).await;
        let (answer, _) = tokio::join!(soon(steward.request(&Request::Stats)), async {
            peer.next().await;
            peer.reply(id, &stats(1)).await
        });
        assert!(matches!(answer, Err(StewardError::Protocol(_))), "{id}: {answer:?}");
        assert!(steward.is_broken());
    }
}

#[tokio::test]
async fn answers_in_another_order_find_those_who_asked() {
    let (steward, mut peer) = Peer::greeted(1 << 16).await;
    let steward = Arc::new(steward);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let steward = Arc::clone(&steward);
            tokio::spawn(async move {
                let Ok(Reply::Stats(stats)) = steward.request(&Request::Stats).await else { panic!() };
                stats.shells
            })
        })
        .collect();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(peer.next().await.0);
    }
    for id in ids.iter().rev() {
        peer.reply(*id, &stats(u64::from(*id))).await;
    }
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(u32::try_from(soon(task).await.unwrap()).unwrap());
    }
    assert_eq!(answers, ids);
}

#[tokio::test]
async fn an_answer_to_whoever_has_gone_is_dropped_and_the_rest_goes_on() {
    let (steward, mut peer) = Peer::greeted(1 << 16).await;
    let gone = {
        let request = steward.request(&Request::Shells);
        tokio::pin!(request);
        tokio::select! {
            _ = &mut request => panic!("nobody answered"),
            (id, _) = peer.next() => id,
        }
    };
    let following = soon(steward.follow(&followed())).await.unwrap();
    let (left, _) = peer.next().await;
    drop(following);
    peer.reply(gone, &Reply::Shells(Vec::new())).await;
    peer.event(left, &Event::Started(At { seq: 1, at: 0 })).await;
    peer.data(left, 2, vec![0; 1000]).await;
    peer.reply(left, &ended()).await;
    // Twice: the second is to a number that was used, and is over.
    peer.reply(gone, &Reply::Done).await;
    let (answer, _) = tokio::join!(soon(steward.request(&Request::Stats)), async {
        let (id, _) = peer.next().await;
        peer.reply(id, &stats(7)).await
    });
    assert_eq!(answer.unwrap(), stats(7));
    assert!(!steward.is_broken());
}

#[tokio::test]
async fn an_end_of_another_kind_is_no_end_of_a_command() {
    let (steward, mut peer) = Peer::greeted(1 << 16).await;
    let mut following = soon(steward.follow(&followed())).await.unwrap();
    let (id, _) = peer.next().await;
    peer.reply(id, &stats(1)).await;
    let answer = soon(following.next()).await;
    assert!(matches!(answer, Err(StewardError::Protocol(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn output_for_a_plain_question_does_not_keep_it_waiting() {
    // A drop now and then, for ever.
    for data in [false, true] {
        let (steward, mut peer) = Peer::greeted(1 << 16).await;
        let drip = async {
            let (id, _) = peer.next().await;
            for seq in 1.. {
                tokio::time::sleep(Duration::from_secs(9)).await;
                let sent = if data {
                    peer.data(id, seq, vec![0; 10]).await
                } else {
                    peer.event(id, &Event::Stalled(true)).await
                };
                if !sent {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let asked = soon(steward.request(&Request::Stats));
        tokio::select! {
            answer = asked => {
                assert!(matches!(answer, Err(StewardError::Silent | StewardError::Protocol(_))), "{answer:?}");
            }
            () = drip => {}
        }
    }
}

#[tokio::test]
async fn a_flood_beyond_the_credit_ends_the_connection_before_it_fills_the_memory() {
    for size in [0, 1, 1000, 64 << 10] {
        let (steward, mut peer) = Peer::greeted(64 << 10).await;
        let mut following = soon(steward.follow(&followed())).await.unwrap();
        let (id, _) = peer.next().await;
        // Nobody takes anything meanwhile.
        let mut sent = 0_u64;
        let flood = async {
            while sent < 4_000_000 / (size as u64 + 1) + 300_000 && peer.data(id, sent + 1, vec![b'x'; size]).await {
                sent += 1;
            }
        };
        soon(flood).await;
        let chunk = size as u64;
        until_broken(&steward).await;
        let mut taken = 0;
        let why = loop {
            match soon(following.next()).await {
                Ok(Next::Told(Told::Output(chunk))) => taken += chunk.bytes.len() as u64,
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(why, StewardError::Protocol(_)), "{size}: {why:?}");
        assert!(taken <= Steward::credit() + chunk, "{taken} bytes were in flight in chunks of {size}");
    }
}

#[tokio::test]
async fn a_flood_of_events_ends_the_connection_too() {
    let (steward, mut peer) = Peer::greeted(64 << 10).await;
    let _following = soon(steward.follow(&followed())).await.unwrap();
    let (id, _) = peer.next().await;
    let mut sent = 0;
    soon(async {
        while sent < 2_000_000 && peer.event(id, &Event::Stalled(sent % 2 == 0)).await {
            sent += 1;
        }
    })
    .await;
    until_broken(&steward).await;
}

#[tokio::test]
async fn a_reader_that_keeps_up_gets_any_amount_within_its_credit() {
    let (steward, mut peer) = Peer::greeted(64 << 10).await;
    let mut following = soon(steward.follow(&followed())).await.unwrap();
    let (id, _) = peer.next().await;
    // Chunks are never cut: one may go beyond the credit that is left, as a steward's do.
    let serve = async {
        let (mut credit, mut seq, mut most) = (i64::try_from(Steward::credit()).unwrap(), 0, 0);
        while seq < 400 {
            while credit > 0 && seq < 400 {
                seq += 1;
                assert!(peer.data(id, seq, vec![b'x'; 10_000]).await);
                credit -= 10_000;
            }
            most = most.max(-credit);
            if seq < 400 {
                let (_, Request::Credit(more)) = peer.next().await else { panic!("no credit") };
                assert_eq!(more.request, id);
                credit += i64::try_from(more.bytes).unwrap();
                assert!(credit <= i64::try_from(Steward::credit()).unwrap(), "more credit than there was");
            }
        }
        peer.reply(id, &ended()).await;
    };
    let take = async {
        let mut taken = 0;
        loop {
            match following.next().await.unwrap() {
                Next::Told(Told::Output(chunk)) => taken += chunk.bytes.len(),
                Next::Told(Told::Event(_)) => {}
                Next::Ended(_) => return taken,
            }
        }
    };
    let (taken, ()) = soon(Box::pin(async { tokio::join!(take, serve) })).await;
    assert_eq!(taken, 4_000_000);
}

#[tokio::test(start_paused = true)]
async fn silence_is_an_error_in_time() {
    let (ours, _theirs) = tokio::io::duplex(1 << 16);
    let answer = soon(Steward::greet(Box::new(ours))).await;
    assert!(matches!(answer, Err(StewardError::Silent)), "{answer:?}");
    let (steward, mut peer) = Peer::greeted(1 << 16).await;
    let answer = soon(steward.request(&Request::Stats)).await;
    assert!(matches!(answer, Err(StewardError::Silent)), "{answer:?}");
    // Late is not wrong.
    let (id, _) = peer.next().await;
    peer.reply(id, &stats(1)).await;
    let (answer, _) = tokio::join!(soon(steward.request(&Request::Stats)), async {
        let (id, _) = peer.next().await;
        peer.reply(id, &stats(2)).await
    });
    assert_eq!(answer.unwrap(), stats(2));
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_listen_is_an_error_in_time_and_hears_no_half_of_anything() {
    let (steward, mut peer) = Peer::greeted(256).await;
    let long = Request::Exec(Box::new(exec(vec![b'x'; 10_000])));
    let answer = soon(steward.request(&long)).await;
    assert!(matches!(answer, Err(StewardError::Silent | StewardError::Broken(_))), "{answer:?}");
    // What was cut short can't be continued by anything.
    let answer = soon(steward.request(&Request::Stats)).await;
    assert!(matches!(answer, Err(StewardError::Broken(_))), "{answer:?}");
    assert!(steward.is_broken());
    drop(steward);
    let mut heard = Vec::new();
    soon(peer.io.read_to_end(&mut heard)).await.unwrap();
    assert!(heard.len() < 10_000, "something was said behind it");
}

#[tokio::test]
async fn a_caller_that_goes_away_in_the_middle_of_its_words_breaks_the_connection() {
    let (steward, mut peer) = Peer::greeted(256).await;
    let mut pending = Box::pin(async {
        let long = Request::Exec(Box::new(exec(vec![b'x'; 10_000])));
        steward.request(&long).await
    });
    tokio::select! {
        _ = &mut pending => panic!("nobody answered"),
        read = async { peer.io.read_u8().await } => { read.unwrap(); }
    }
    drop(pending);
    let answer = soon(steward.request(&Request::Stats)).await;
    assert!(matches!(answer, Err(StewardError::Broken(_))), "{answer:?}");
    assert!(steward.is_broken());
}

/// What a steward said to a question and to a command, apart.
async fn real_conversation() -> Option<[Vec<u8>; 3]> {
    let bench = Bench::new(bench::local).await?;
    let handle = bench.instance("real").await;
    let Ok(Access::Steward(channel)) = bench.provider.access(&handle).await else { panic!() };
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let said: Arc<Mutex<Vec<u8>>> = Arc::default();
    let relay = {
        let said = Arc::clone(&said);
        async move {
            let ((mut up, mut down), (mut from_us, mut to_us)) = (tokio::io::split(channel), tokio::io::split(theirs));
            let back = async {
                let mut buffer = vec![0; 4096];
                while let Ok(bytes @ 1..) = up.read(&mut buffer).await {
                    said.lock().unwrap().extend_from_slice(&buffer[..bytes]);
                    to_us.write_all(&buffer[..bytes]).await.unwrap();
                }
            };
            tokio::join!(back, async {
                let _ = tokio::io::copy(&mut from_us, &mut down).await;
            });
        }
    };
    let relay = tokio::spawn(relay);
    let mut parts: [Vec<u8>; 3] = Default::default();
    let take = || std::mem::take(&mut *said.lock().unwrap());
    let steward = Steward::greet(Box::new(ours)).await.unwrap();
    parts[0] = take();
    steward.request(&open_request(&fresh(&*bench.provider, &handle, "main"))).await.unwrap();
    parts[1] = take();
    let mut following = steward.follow(&spoken()).await.unwrap();
    while let Next::Told(_) = following.next().await.unwrap() {}
    parts[2] = take();
    drop(following);
    drop(steward);
    relay.abort();
    Some(parts)
}

fn open_request(opening: &stead_server::runtime::Opening) -> Request {
    let env = opening.surroundings.env.iter().map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
    Request::OpenShell(Box::new(OpenShell {
        shell: opening.shell.clone(),
        program: Program::Best,
        env: env.collect(),
        cwd: Bytes::from(&opening.surroundings.cwd),
        state: None,
        version: None,
    }))
}

fn spoken() -> Request {
    Request::Exec(Box::new(Exec { follow: Some(Steward::credit()), ..exec("echo out; echo err >&2; (exit 3)") }))
}

#[tokio::test]
async fn a_connection_that_ends_at_any_byte_is_an_error_and_nothing_is_made_up() {
    let Some(parts) = real_conversation().await else { return };
    let whole: usize = parts.iter().map(Vec::len).sum();
    assert!(whole > 200, "{parts:?}");
    for cut in 0..=whole {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let replay = async {
            let mut peer = Peer { io: theirs, decoder: Decoder::default() };
            let mut left = cut;
            for part in &parts {
                peer.next().await;
                let now = left.min(part.len());
                peer.io.write_all(&part[..now]).await.unwrap();
                left -= now;
                if now < part.len() {
                    break;
                }
            }
            // Whoever is at the other end knows it by this.
            drop(peer);
        };
        let talk = async {
            let steward = Steward::greet(Box::new(ours)).await?;
            let open = OpenShell {
                shell: ShellId::parse("main").unwrap(),
                program: Program::Best,
                env: Vec::new(),
                cwd: Bytes::default(),
                state: None,
                version: None,
            };
            steward.request(&Request::OpenShell(Box::new(open))).await?;
            let mut following = steward.follow(&spoken()).await?;
            let mut output = [Vec::new(), Vec::new()];
            loop {
                match following.next().await {
                    Ok(Next::Told(Told::Output(chunk))) => {
                        output[usize::from(chunk.stream == Stream::Stderr)].extend(chunk.bytes);
                    }
                    Ok(Next::Told(Told::Event(_))) => {}
                    Ok(Next::Ended(info)) => return Ok((info.ending.unwrap().exit_code, output)),
                    Err(error) => return Err(error),
                }
            }
        };
        let (answer, ()) = soon(Box::pin(async { tokio::join!(talk, replay) })).await;
        if cut == whole {
            assert_eq!(answer.unwrap(), (Some(3), [b"out\n".to_vec(), b"err\n".to_vec()]));
        } else {
            assert!(matches!(answer, Err(StewardError::Broken(_))), "cut at {cut} of {whole}: {answer:?}");
        }
    }
}
