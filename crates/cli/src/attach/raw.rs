//! The terminal that somebody sits at, for a while as others need it, and then again as it was: at the end, after a panic,
//! after a signal.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, Once, PoisonError};

/// How the terminal was, while it isn't.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What programs at the other end may have switched on and nobody switches off when we leave: the other screen, mouse
/// reports, bracketed paste, application keys, a hidden cursor, colours. The other screen is left without moving the cursor.
const CALM: &[u8] =
    b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m";

/// Every key as it is, nothing shown by itself; until dropped.
#[derive(Debug)]
pub(super) struct Raw(());

impl Raw {
    pub(super) fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        change(Termios::make_raw)?;
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if io::stdout().is_terminal() {
            let mut stdout = io::stdout().lock();
            let _ = stdout.write_all(CALM).and_then(|()| stdout.flush());
        }
        restore();
    }
}

/// What is typed is not shown; until dropped.
#[derive(Debug)]
pub(crate) struct Silence(());

impl Silence {
    pub(crate) fn on_stdin() -> io::Result<Self> {
        change(|modes| modes.local_modes.remove(LocalModes::ECHO))?;
        Ok(Self(()))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        restore();
    }
}

fn change(how: impl FnOnce(&mut Termios)) -> io::Result<()> {
    let modes = tcgetattr(io::stdin())?;
    let mut changed = modes.clone();
    how(&mut changed);
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(modes);
    tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
    Ok(())
}

fn restore() {
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // What was typed and not read yet is for the shell that we came from.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}
