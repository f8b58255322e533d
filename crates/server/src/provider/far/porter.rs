//! One porter for each instance that is somewhere else: it alone speaks to the carrier there, keeps the mirror of its
//! journal, and carries files both ways. Others give it errands and wait.
//!
//! ```text
//! errand ──► line there? ──no──► open one ──fails──► the errand fails
//!    idle ──► asks for the journal and waits with it: what is written over there is here a moment later
//!    a command has ended over there ──► what it changed of the files is brought here, soon
//!    a command runs over there ──► every minute the cloud is told that somebody is at work
//! ```

use super::here::{Here, next_piece};
use super::line::{Heard, Line, LineError};
use super::manifest::{Difference, Manifest, Side};
use super::mirror::Mirror;
use crate::provider::machine::trouble_of;
use crate::provider::{Tree, Trouble};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_clouds::Cloud;
use stead_model::carry::{Ask, Content, Done, Entry, Kind, Known, Log, PIECE, Put, Said};
use stead_model::ids::InstanceId;
use stead_model::record::{MAGIC, Record, Records};
use stead_model::state::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long the carrier may wait for news before it says that there are none.
const WAIT_MS: u64 = 30_000;

/// Whoever says nothing for so long is not there.
const SILENT: Duration = Duration::from_millis(2 * WAIT_MS);

/// How often a cloud is told that a command runs. The shortest of their time-outs is five minutes.
const AWAKE_EVERY: Duration = Duration::from_mins(1);

/// How soon after a command its files are brought here; and how far apart that is at least.
const FILES_AFTER: Duration = Duration::from_secs(2);

/// Files asked for at once.
const BATCH: usize = 200;

/// Errands that may wait; whoever comes then waits to be let in.
const ERRANDS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    /// Bring all that has been journalled.
    CatchUp,
    /// Bring what has changed of the files there.
    Fetch,
    /// Take there what has changed of the files here.
    Deliver,
}

/// Why an errand was not done.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) trouble: Trouble,
    pub(super) message: String,
}

impl From<LineError> for Failed {
    fn from(error: LineError) -> Self {
        let trouble = match &error {
            LineError::Here(why) => trouble_of(why),
            LineError::Broken(_) | LineError::Protocol(_) | LineError::Refused(_) => Trouble::Unavailable,
        };
        Self { trouble, message: chain(&error) }
    }
}

type Answer = oneshot::Sender<Result<(), Failed>>;

/// Gives errands. The porter goes home when the last one of these is gone.
#[derive(Debug, Clone)]
pub(super) struct Orders {
    errands: mpsc::Sender<(Errand, Answer)>,
    is_heard: Arc<AtomicBool>,
}

impl Orders {
    pub(super) async fn run(&self, errand: Errand) -> Result<(), Failed> {
        let (answer, answered) = oneshot::channel();
        let home = || Failed { trouble: Trouble::Unavailable, message: "the porter has gone home".to_owned() };
        self.errands.send((errand, answer)).await.map_err(|_| home())?;
        answered.await.unwrap_or_else(|_| Err(home()))
    }

    /// Whether the sandbox has been heard from lately.
    pub(super) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    /// Whether there is still somebody to take them.
    pub(super) fn are_taken(&self) -> bool {
        !self.errands.is_closed()
    }
}

/// What a porter must know.
#[derive(Debug, Clone)]
pub(super) struct Post {
    pub(super) cloud: Arc<dyn Cloud>,
    /// As the cloud calls it.
    pub(super) id: String,
    pub(super) instance: InstanceId,
    /// The carrier's program over there, and the steward's directory.
    pub(super) program: String,
    pub(super) place: String,
    /// How much may be on its way from there.
    pub(super) window: u64,
    /// What is kept here for the lease.
    pub(super) lease: PathBuf,
    pub(super) trees: Vec<Tree>,
}

/// Sends a porter to an instance.
pub(super) fn hire(post: Post) -> std::io::Result<Orders> {
    let mirror = Mirror::open(&post.lease, &post.instance)?;
    let here = Here::open(&post.trees)?;
    let manifest = Manifest::open(&post.lease, post.instance.as_str());
    let (errands, inbox) = mpsc::channel(ERRANDS);
    let books = Arc::new(Mutex::new(Books { mirror, here, manifest }));
    let is_heard = Arc::new(AtomicBool::new(false));
    let porter = Porter {
        is_heard: Arc::clone(&is_heard),
        post,
        books,
        line: None,
        waiting: None,
        awake_at: Instant::now(),
        files_at: None,
    };
    tokio::spawn(porter.work(inbox));
    Ok(Orders { errands, is_heard })
}

/// What is on this machine; touched away from the tasks that must not wait for a disk.
#[derive(Debug)]
struct Books {
    mirror: Mirror,
    here: Here,
    manifest: Manifest,
}

struct Porter {
    post: Post,
    /// For whoever asks whether it lives.
    is_heard: Arc<AtomicBool>,
    books: Arc<Mutex<Books>>,
    line: Option<Line>,
    /// The question for the journal that the carrier waits with.
    waiting: Option<u32>,
    awake_at: Instant,
    /// When the files are to be brought here; none if nothing can have changed since they were.
    files_at: Option<Instant>,
}

impl Porter {
    async fn work(mut self, mut inbox: mpsc::Receiver<(Errand, Answer)>) {
        loop {
            let errand = match self.attend(&mut inbox).await {
                Ok(Some(errand)) => errand,
                Ok(None) => return,
                Err(error) => {
                    // Whoever has an errand opens another line; nothing is lost meanwhile, the journal is the buffer.
                    tracing::debug!(%error, instance = %self.post.instance, "the line to a sandbox is closed");
                    self.hang_up();
                    continue;
                }
            };
            let (errand, answer) = errand;
            let done = self.run(errand).await;
            if !matches!(done, Ok(()) | Err(LineError::Refused(_) | LineError::Here(_))) {
                self.hang_up();
            }
            let _ = answer.send(done.map_err(Failed::from));
        }
    }

    fn hang_up(&mut self) {
        (self.line, self.waiting) = (None, None);
        self.is_heard.store(false, Ordering::Relaxed);
    }

    /// Mirrors what happens until there is an errand; none when nobody can give one any more.
    async fn attend(
        &mut self,
        inbox: &mut mpsc::Receiver<(Errand, Answer)>,
    ) -> Result<Option<(Errand, Answer)>, LineError> {
        loop {
            if self.line.is_none() {
                return Ok(inbox.recv().await);
            }
            if self.waiting.is_none() {
                self.keep_awake().await?;
                let marks = self.with_books(|books| Ok(books.mirror.marks()?)).await?;
                let ask = Ask::Journal(Known { marks, wait_ms: WAIT_MS });
                self.waiting = Some(self.line()?.ask(&ask).await?);
            }
            let files_at = self.files_at;
            self.line()?.give_back().await?;
            let Some(line) = self.line.as_mut() else { continue };
            let heard = tokio::select! {
                biased;
                errand = inbox.recv() => return Ok(errand),
                heard = line.hear() => Some(heard?),
                () = until(files_at) => None,
                () = tokio::time::sleep(SILENT) => return Err(LineError::Broken("it is silent".to_owned())),
            };
            match heard {
                Some(heard) => self.take(heard).await?,
                None => self.fetch().await?,
            }
        }
    }

    /// Tells the cloud that somebody is at work, if a command runs.
    async fn keep_awake(&mut self) -> Result<(), LineError> {
        if self.awake_at.elapsed() < AWAKE_EVERY {
            return Ok(());
        }
        self.awake_at = Instant::now();
        if self.with_books(|books| Ok(books.mirror.is_busy()?)).await?
            && let Err(error) = self.post.cloud.keep_awake(&self.post.id).await
        {
            tracing::warn!(%error, instance = %self.post.instance, "a cloud was not told that a command runs");
        }
        Ok(())
    }

    fn line(&mut self) -> Result<&mut Line, LineError> {
        self.line.as_mut().ok_or_else(|| LineError::Broken("it is closed".to_owned()))
    }

    async fn with_books<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Books) -> Result<T, LineError> + Send + 'static,
    ) -> Result<T, LineError> {
        let books = Arc::clone(&self.books);
        let done = tokio::task::spawn_blocking(move || work(&mut books.lock().unwrap_or_else(PoisonError::into_inner)));
        done.await.unwrap_or_else(|error| Err(LineError::Broken(error.to_string())))
    }

    async fn run(&mut self, errand: Errand) -> Result<(), LineError> {
        if self.line.is_none() {
            let Post { cloud, id, program, place, .. } = &self.post;
            let window = self.post.window;
            let channel = cloud.open(id, program, &["carry", "--dir", place, "--window", &window.to_string()]).await;
            let channel = channel.map_err(|error| LineError::Broken(error.to_string()))?;
            self.line = Some(Line::new(Box::new(channel), window));
            self.catch_up().await?;
            self.is_heard.store(true, Ordering::Relaxed);
        }
        match errand {
            Errand::CatchUp => self.catch_up().await,
            Errand::Fetch => self.fetch().await,
            Errand::Deliver => self.deliver().await,
        }
    }

    /// Asks something and hears all that is said about it.
    async fn ask(&mut self, ask: &Ask, heard: &mut (dyn FnMut(Said) + Send)) -> Result<Done, LineError> {
        let asked = self.line()?.ask(ask).await?;
        loop {
            match self.line()?.hear_soon().await? {
                Heard::Done(number, done) if number == asked => return Ok(done?),
                Heard::Said(said @ (Said::Entries(_) | Said::Content(_))) => heard(said),
                other @ (Heard::Said(_) | Heard::Done(..)) => self.take(other).await?,
            }
        }
    }

    /// What comes by itself: the journal, and the end of waiting for it.
    async fn take(&mut self, heard: Heard) -> Result<(), LineError> {
        match heard {
            Heard::Done(number, done) => {
                if self.waiting == Some(number) {
                    self.waiting = None;
                }
                done.map(drop).map_err(LineError::from)
            }
            Heard::Said(Said::Output(output)) => self.with_books(move |books| books.mirror.output(&output)).await,
            Heard::Said(Said::State(state)) => self.with_books(move |books| books.mirror.state(&state)).await,
            Heard::Said(Said::Log(log)) => {
                if self.files_at.is_none() && tells_of_an_end(&log) {
                    self.files_at = Some(Instant::now() + FILES_AFTER);
                }
                self.with_books(move |books| books.mirror.log(&log)).await
            }
            Heard::Said(Said::Entries(_) | Said::Content(_)) => {
                Err(LineError::Protocol("it tells of files that nobody asked for".to_owned()))
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), LineError> {
        let marks = self.with_books(|books| Ok(books.mirror.marks()?)).await?;
        self.ask(&Ask::Journal(Known { marks, wait_ms: 0 }), &mut |_| {}).await.map(drop)
    }

    async fn list(&mut self) -> Result<Vec<Entry>, LineError> {
        let roots = self.with_books(|books| Ok(books.here.roots())).await?;
        let mut entries = Vec::new();
        let mut hear = |said| {
            if let Said::Entries(more) = said {
                entries.extend(more);
            }
        };
        self.ask(&Ask::List(roots), &mut hear).await?;
        Ok(entries)
    }

    async fn fetch(&mut self) -> Result<(), LineError> {
        self.files_at = None;
        let entries = self.list().await?;
        let changed = self
            .with_books(move |books| {
                if let Some(stray) = entries.iter().find(|entry| !books.here.has_place_for(&entry.path)) {
                    return Err(LineError::Protocol(format!("a file at `{}`", stray.path.escape_ascii())));
                }
                let Difference { changed, removed } = books.manifest.difference(Side::There, entries);
                for path in removed {
                    books.here.remove(&path)?;
                    books.manifest.forget(&path);
                }
                let (files, others): (Vec<_>, _) = changed.into_iter().partition(|entry| entry.kind == Kind::File);
                for entry in others {
                    books.here.make(&entry)?;
                    let here = books.here.stamp(&entry.path)?.unwrap_or_default();
                    books.manifest.note(&entry, entry.stamp, here);
                }
                Ok(files)
            })
            .await?;
        for batch in changed.chunks(BATCH) {
            self.fetch_files(batch).await?;
            // Whoever is cut off goes on from here.
            self.with_books(|books| Ok(books.manifest.save()?)).await?;
        }
        self.with_books(|books| Ok(books.manifest.save()?)).await
    }

    async fn fetch_files(&mut self, files: &[Entry]) -> Result<(), LineError> {
        let by_path: HashMap<_, _> = files.iter().map(|entry| (entry.path.clone(), entry.clone())).collect();
        let asked = self.line()?.ask(&Ask::Get(files.iter().map(|entry| entry.path.clone()).collect())).await?;
        loop {
            let content = match self.line()?.hear_soon().await? {
                Heard::Done(number, done) if number == asked => return Ok(done.map(drop)?),
                Heard::Said(Said::Content(content)) => content,
                other @ (Heard::Said(_) | Heard::Done(..)) => {
                    self.take(other).await?;
                    continue;
                }
            };
            let Some(entry) = by_path.get(&content.path).cloned() else {
                return Err(LineError::Protocol("a file that nobody asked for".to_owned()));
            };
            self.with_books(move |books| {
                let Content { offset, bytes, last, gone, .. } = *content;
                if gone {
                    return Ok(());
                }
                books.here.piece(&entry, offset, &bytes, last)?;
                if last {
                    let here = books.here.stamp(&entry.path)?.unwrap_or_default();
                    books.manifest.note(&entry, entry.stamp, here);
                }
                Ok(())
            })
            .await?;
        }
    }

    async fn deliver(&mut self) -> Result<(), LineError> {
        let difference = self.with_books(|books| Ok(books.manifest.difference(Side::Here, books.here.list()?)));
        let Difference { changed, removed } = difference.await?;
        for path in removed {
            self.ask(&Ask::Remove(path.clone()), &mut |_| {}).await?;
            self.with_books(move |books| {
                books.manifest.forget(&path);
                Ok(())
            })
            .await?;
        }
        for entry in &changed {
            self.put(entry).await?;
        }
        self.with_books(|books| Ok(books.manifest.save()?)).await
    }

    async fn put(&mut self, entry: &Entry) -> Result<(), LineError> {
        let Entry { path, kind, mode, stamp, target } = entry.clone();
        let opened = if kind == Kind::File {
            let wanted = path.clone();
            self.with_books(move |books| Ok(books.here.read(&wanted).ok())).await?
        } else {
            None
        };
        if kind == Kind::File && opened.is_none() {
            // It went while we looked.
            return Ok(());
        }
        let (mut file, mut offset) = (opened, 0);
        loop {
            let bytes = match file.take() {
                None => Vec::new(),
                Some(mut from) => {
                    let read =
                        tokio::task::spawn_blocking(move || next_piece(&mut from, PIECE).map(|read| (from, read)));
                    let read = read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
                    file = Some(read.0);
                    read.1
                }
            };
            let last = bytes.len() < PIECE;
            let length = bytes.len() as u64;
            let put = Put {
                path: path.clone(),
                kind,
                // Whoever is over there must be able to go on working in it.
                mode: if kind == Kind::Dir { mode | 0o700 } else { mode },
                modified: stamp.modified,
                target: target.clone(),
                offset,
                bytes: Bytes(bytes),
                last,
            };
            let done = self.ask(&Ask::Put(Box::new(put)), &mut |_| {}).await?;
            if let (true, Done::There(there)) = (last, done) {
                let entry = entry.clone();
                return self
                    .with_books(move |books| {
                        books.manifest.note(&entry, there, entry.stamp);
                        Ok(())
                    })
                    .await;
            }
            if last {
                return Err(LineError::Protocol("it does not say what a file looks like".to_owned()));
            }
            offset += length;
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn tells_of_an_end(log: &Log) -> bool {
    let records = log.bytes.strip_prefix(MAGIC.as_slice()).unwrap_or(&log.bytes);
    Records::new(records).any(|(record, _)| matches!(record, Record::Ended(_)))
}

fn chain(error: &dyn std::error::Error) -> String {
    crate::provider::local::chain(error)
}
