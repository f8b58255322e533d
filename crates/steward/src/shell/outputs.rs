//! What one command leaves in the shell for the next, besides its state: `PIPESTATUS`, and where the shell's own outputs
//! lead. A command may point them somewhere with `exec 2>file`, and there they stay, as at a prompt.
//!
//! The shell reports both by an epilogue ([`stead_model::epilogue`]), and hands over an output that leads elsewhere as a
//! descriptor. We look where the descriptor leads: what is one of our pipes, or the shell's terminal, is the next
//! command's own again; anything else is kept, and bytes go there and not to the journal.

use super::Shell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stead_model::effect::Effect;
use stead_model::epilogue::{Epilogue, HANDED_OVER, Held, KEPT, Leftovers, Outputs, Target, epilogue_of};
use stead_model::proto::{Exec, Warning};
use stead_model::record::StateMark;
use stead_model::shell::Dialect;
use stead_model::state::Bytes;
use stead_term::{proc, pty};

impl Shell {
    /// What is put behind the text of a command.
    pub(super) fn epilogue(&self, exec: &Exec, effect: Effect) -> Epilogue {
        if self.dialect != Dialect::Bash {
            return Epilogue::None;
        }
        let carried = self.mark.pipe_status.is_some();
        epilogue_of(&exec.text, effect, carried, &self.context)
    }

    /// `PIPESTATUS` for a command that may look at it. One that only starts programs can't, unless its text says so.
    pub(super) fn pipe_status_for(&self, text: &[u8], effect: Effect) -> &[u8] {
        let says_so = || text.windows(10).any(|word| word == b"PIPESTATUS");
        let found = self.mark.pipe_status.as_deref().unwrap_or_default();
        let declared = self.state.variables.contains_key(b"PIPESTATUS".as_slice());
        if !found.is_empty() && !declared && (effect == Effect::Unknown || says_so()) { found } else { &[] }
    }

    /// Where the outputs of the next command lead, and which of our descriptors the shell has for them.
    pub(super) fn outputs_of_next(&self) -> ([Target; 2], Held) {
        let live = self.live.as_ref().filter(|_| !self.context.redefined.contains(b"command".as_slice()));
        let (Some(outputs), Some(live)) = (&self.mark.outputs, live) else { return Default::default() };
        let is_open = |number: i32| proc::descriptor(live.pid, number).is_some();
        let held = Held { kept: KEPT.map(is_open), handed_over: HANDED_OVER.map(is_open) };
        (held.possible(outputs.targets), held)
    }

    /// Takes what a command has left into the mark of the state after it.
    pub(super) fn take_leftovers(&self, mark: &mut StateMark, leftovers: &Leftovers) {
        mark.pipe_status = leftovers.pipe_status();
        mark.outputs = match (leftovers.outputs, mark.outputs.take()) {
            (Some(targets), before) => self.outputs_by(targets, before),
            // The line of this command has closed whatever was handed over.
            (None, Some(before)) if before.targets == [Target::Own; 2] => None,
            (None, before) => before,
        };
    }

    /// `None` if every output is its command's own and no descriptor of ours is open in the shell.
    fn outputs_by(&self, reported: [Target; 2], before: Option<Outputs>) -> Option<Outputs> {
        let mut outputs = Outputs { targets: reported, ..Outputs::default() };
        let handed_over = reported.contains(&Target::Kept);
        let each = outputs.targets.iter_mut().zip(&mut outputs.links).zip(HANDED_OVER).zip(['o', 'e']);
        for (((target, link), number), own) in each.filter(|(((target, _), _), _)| **target == Target::Kept) {
            let found = self.live.as_ref().and_then(|live| proc::descriptor(live.pid, number));
            // Gone with its shell, which has nothing to keep then.
            let Some(found) = found else {
                *target = Target::Own;
                continue;
            };
            *target = self.target_of(&found, own);
            if *target == Target::Kept {
                *link = Bytes(found);
            }
        }
        let let_go = before.is_none_or(|before| before.targets == [Target::Own; 2]);
        let nothing = outputs.targets == [Target::Own; 2] && !handed_over && let_go;
        (!nothing).then_some(outputs)
    }

    /// Where an output leads whose link the kernel gives. `own`: which pipe would be its own.
    fn target_of(&self, link: &[u8], own: char) -> Target {
        let link = link.strip_suffix(b" (deleted)").unwrap_or(link);
        let path = Path::new(OsStr::from_bytes(link));
        let name = path.file_name().and_then(OsStr::to_str).filter(|_| path.parent() == Some(self.run.as_path()));
        match name.and_then(|name| name.split_once('.')) {
            Some(("o", _)) => return if own == 'o' { Target::Own } else { Target::Other },
            Some(("e", _)) => return if own == 'e' { Target::Own } else { Target::Other },
            Some(_) | None => {}
        }
        let terminal = self.live.as_ref().and_then(|live| pty::name(&live.terminal));
        let is_terminal = link == b"/dev/tty" || terminal.is_some_and(|name| link == name.as_bytes());
        if is_terminal { Target::Own } else { Target::Kept }
    }

    /// Whether no output of a running command leads to its own pipes: whether it holds them tells nothing then.
    pub(super) fn has_no_output_of_its_own(&self) -> bool {
        let outputs = self.mark.outputs.as_ref();
        outputs.is_some_and(|outputs| outputs.targets.iter().all(|to| matches!(to, Target::Kept | Target::Closed)))
    }
}

/// Whoever finds an output empty is to know why.
pub(super) fn warnings(outputs: &Outputs) -> impl Iterator<Item = Warning> {
    let names = [("stdout_redirected", "standard output", ">"), ("stderr_redirected", "standard error", "2>")];
    outputs.targets.iter().zip(&outputs.links).zip(names).filter_map(|((target, link), (code, name, sign))| {
        let state = match target {
            Target::Kept => format!("goes to `{}`", String::from_utf8_lossy(link)),
            Target::Closed => "is closed".to_owned(),
            Target::Own | Target::Other => return None,
        };
        let message = format!("the shell's {name} {state}, as a command left it; `exec {sign}/dev/tty` brings it back");
        Some(Warning { code: code.into(), message })
    })
}
